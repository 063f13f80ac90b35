"""Which GPUs of a run with vLLM train and which sample, and what is transferred between them in each step."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from vcsd.projection.spoken import memory
from vcsd.rollout.vllm.vllm_engine import PER_REQUEST

if TYPE_CHECKING:
    from vcsd.config.recipe import Recipe
    from vcsd.projection.project import Job

_HALF = 2


def placement(recipe: Recipe, job: Job, num_ranks: int) -> list[str]:
    """Return lines on what samples and what is transferred; none if transformers samples in the trainer.

    `num_ranks` is the number of ranks that train.
    """
    rollout = recipe.rollout
    if rollout.engine == "transformers":
        return []
    ranks = f"{num_ranks} {'rank' if num_ranks == 1 else 'ranks'}"
    weights = f"weights, {memory(_HALF * (job.sizes.num_parameters - job.sizes.num_adapter))} per step"
    if rollout.engine == "vllm":
        share = f"{rollout.vllm_memory_share:.0%}"
        return [
            f"{ranks}; each trains and samples on its own GPU; vLLM takes {share} of it and sleeps during the update",
            f"{weights}, within each GPU; with shards, also between the ranks, one tensor at a time",
        ]
    place = rollout.server_url or "a server that the run starts on this machine"
    link = {"files": "through /dev/shm of this machine", "nccl": "by NCCL from rank 0 to every GPU of the server"}
    part = ", at most" if rollout.server_sends_changes else ""
    return [
        f"{ranks} {'trains' if num_ranks == 1 else 'train'}; {place} samples{_ahead(rollout.steps_ahead)}",
        f"{weights}{part}, {link[rollout.server_transfer]}",
        f"prompts with images, at most {memory(_request_bytes(job))} per step, over HTTP; responses, as token ids",
    ]


def _ahead(steps: int) -> str:
    """Describe what a server samples while the ranks train."""
    if not steps:
        return ""
    return f" the batch of {'the next step' if steps == 1 else f'{steps} steps later'} meanwhile"


def _request_bytes(job: Job) -> int:
    """Bytes of a step's requests if every prompt token were an image token, with images encoded as base64."""
    vision = job.config.vision_config
    patch = int(3 * vision.patch_size**2 * vision.temporal_patch_size * vision.spatial_merge_size**2) * _HALF
    requests = job.step.num_prompts * ceil(job.step.num_rollouts / PER_REQUEST)
    return requests * job.step.prompt_tokens * patch * 4 // 3
