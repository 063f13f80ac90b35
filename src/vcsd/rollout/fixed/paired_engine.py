"""Contrast decoding with vLLM: two requests for each rollout, one with the image and one with the control.

    engine = PairedEngine(model, target, method=METHODS["vcsd"])      # the target was started with PROCESSOR
    engine.refresh(1, probe)
    engine.sample([pair(example, method, processor)], Sampling(temperature=0), num_rollouts=1, seed=0)

`pair_rows.py` explains how the two stay in step, and why equal replies prove that they did. If a batch is full, vLLM
may begin the two in different batches. Both then end at once, and the pair is sent again with fewer others; by then
vLLM has both prompts in its prefix cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.errors import RunError
from vcsd.method import METHODS, Method
from vcsd.rollout.contrast_engine import Pair
from vcsd.rollout.engine import Sampled
from vcsd.rollout.fixed.pair_rows import pair_sides
from vcsd.rollout.sampling import rollout_key
from vcsd.rollout.vllm.vllm_engine import VLLMEngine
from vcsd.rollout.vllm.vllm_requests import refuse_other_prompt
from vcsd.rollout.vllm.weight_sync import refuse_other_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.engine import ProgressCallback
    from vcsd.rollout.sampling import Sampling
    from vcsd.types import Rollout

PROCESSOR = "vcsd.rollout.fixed.pair_processor:PairProcessor"
"""What vLLM must load for pairs."""

AT_ONCE = 32
"""Pairs asked together at first. Those that were not computed in step are asked again, half as many together."""

Job = tuple[Pair, int]
"""A pair, and the index of one of its rollouts."""


class PairedEngine(VLLMEngine):
    """Draws rollouts of `Pair`s from the target that a method defines, and rollouts of other prompts as usual."""

    def __init__(self, *arguments: Any, method: Method = METHODS["vcsd"], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.method, self.objective = method, method.objective(self.end_ids)
        self.num_out_of_step = 0
        """Pairs that vLLM did not compute in step, and that were asked again."""

    def sample(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        num_rollouts: int,
        seed: int,
        step: int = 0,
        with_log_probs: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Sampled:
        """Draw `num_rollouts` rollouts of every prompt or pair; pairs come without log-probabilities."""
        pairs = [prompt for prompt in prompts if isinstance(prompt, Pair)]
        if not pairs:
            options: dict[str, Any] = {"with_log_probs": with_log_probs, "progress": progress}
            return super().sample(prompts, sampling, num_rollouts=num_rollouts, seed=seed, step=step, **options)
        assert len(pairs) == len(prompts), "pairs and plain prompts are asked separately"
        assert not with_log_probs, "pairs have no log-probabilities"
        if self.version is None:
            raise RunError("the rollout engine has no weights yet: call refresh first.")
        jobs = [(pair, index) for pair in pairs for index in range(num_rollouts)]
        drawn: dict[Job, Rollout] = {}
        for together in self._rounds(jobs, drawn):
            drawn |= self._ask(together, sampling, seed, step)
            if progress is not None:
                progress(len(drawn), len(jobs))
        return Sampled(tuple(drawn[job] for job in jobs))

    def _rounds(self, jobs: Sequence[Job], drawn: dict[Job, Rollout]) -> Iterator[Sequence[Job]]:
        """Yield the jobs that are not yet drawn, fewer together in each round; raise if one fails even alone."""
        size, num_alone = AT_ONCE, 0
        while todo := [job for job in jobs if job not in drawn]:
            num_alone += size == 1
            if num_alone > 2:  # the second time, vLLM has both prompts in its cache
                raise RunError(
                    f"vLLM did not compute both views of example {todo[0][0].example_id!r} in one batch, even without "
                    "others. They do not fit together: raise max_num_batched_tokens, or shrink the images."
                )
            for start in range(0, len(todo), size):
                yield todo[start : start + size]
            size = max(1, size // 2)

    def _ask(self, jobs: Sequence[Job], sampling: Sampling, seed: int, step: int) -> dict[Job, Rollout]:
        """Ask both views of each job, and return the rollouts of those that were computed in step."""
        assert self.version is not None
        prompts = [view for pair, _ in jobs for view in (pair.original, pair.control)]
        inputs = {id(prompt): self._input(prompt) for prompt in prompts}
        values = list(self._pair_values(jobs, sampling, seed, step))
        replies = self._target.generate([inputs[id(prompt)] for prompt in prompts], values, tell=lambda done: None)
        refuse_other_version(self._target, self.version)
        for prompt, reply in zip(prompts, replies, strict=True):
            refuse_other_prompt(prompt, reply.prompt_token_ids)
        drawn = {}
        for job, original, control in zip(jobs, replies[::2], replies[1::2], strict=True):
            first, second = original.outputs[0], control.outputs[0]
            if list(first.token_ids) == list(second.token_ids) and not set(self.vision_ids) & set(first.token_ids):
                drawn[job] = self._to_rollout(first, job[0].example_id, job[1], sampling)
        self.num_out_of_step += len(jobs) - len(drawn)
        return drawn

    def _pair_values(self, jobs: Iterable[Job], sampling: Sampling, seed: int, step: int) -> Iterator[dict[str, Any]]:
        """Yield the sampling values of both requests of each job: the same seed, and each its side of the pair."""
        for pair, index in jobs:
            key = rollout_key(seed, step, pair.example_id, index)
            values = self._values(sampling, key, with_log_probs=False)
            stops = sorted({*self.end_ids, *self.vision_ids})
            for side in pair_sides(key, self.objective, self.vision_ids):
                most = self._most(pair, sampling)  # both views end together, also if there is no room for more
                yield {**values, "stop_token_ids": stops, "extra_args": side, "max_tokens": most}
