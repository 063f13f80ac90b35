"""Requests to vLLM, and its replies: prompts, sampling values and outputs.

vLLM gets the trainer's own token ids and patches, not messages and images. Its tokenizer, chat template and image
processor therefore cannot disagree with the student's, and image tokens are not expanded a second time.

Every request has a seed of its own, from its first rollout's key: which requests share a batch does not matter. The
random numbers differ from those of `TransformersEngine`, so the two engines agree in distribution, not token by token.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from vcsd.errors import ConfigError, RunError, shown
from vcsd.types import Rollout

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.sampling import Sampling

BAN = -100.0
"""The bias of a token that must not be drawn: vLLM allows no lower one. Replies are checked as well."""


class RequestRefusedError(RunError):
    """vLLM refuses one request, such as a prompt that is too long. Others may be answered."""


class TokenLogProb(Protocol):
    """The log-probability of one token, as vLLM returns it."""

    logprob: float


class VLLMReply(Protocol):
    """One reply of vLLM."""

    token_ids: Sequence[int]
    finish_reason: str | None
    logprobs: Sequence[Mapping[int, TokenLogProb]] | None


@dataclass(frozen=True)
class ImageSpan:
    """Where the tokens of one image lie in a prompt."""

    offset: int
    length: int


@dataclass(frozen=True, eq=False)
class RequestImages:
    """The images of one prompt: patches, grids, the names they are cached under, and where their tokens lie."""

    pixel_values: Tensor
    grid_thw: Tensor
    names: list[str]
    spans: list[ImageSpan]


def image_spans(prompt: Prompt, image_token_id: int, merge_size: int) -> list[ImageSpan]:
    """Return where each image's tokens lie. Raise a RunError if they do not fit the image's grid.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> ids, grid = torch.tensor([1, 9, 9, 9, 9, 2]), torch.tensor([[1, 4, 4]])
    >>> image_spans(SimpleNamespace(input_ids=ids, grid_thw=grid), image_token_id=9, merge_size=2)
    [ImageSpan(offset=1, length=4)]
    """
    if prompt.grid_thw is None:
        return []
    places = [place for place, token in enumerate(prompt.input_ids.tolist()) if token == image_token_id]
    lengths = [int(patches) // merge_size**2 for patches in prompt.grid_thw.prod(-1)]
    if sum(lengths) != len(places):
        raise RunError(
            f"example {prompt.example_id!r}: its prompt has {len(places)} image tokens, its images need {sum(lengths)}."
        )
    spans, start = [], 0
    for length in lengths:
        spans.append(ImageSpan(places[start], length))
        start += length
    return spans


def sampling_values(
    sampling: Sampling, key: str, end_ids: Collection[int], banned: Collection[int]
) -> dict[str, object]:
    """Return the arguments of vLLM's SamplingParams for a request. Nothing is left to vLLM's defaults."""
    return {
        "n": 1,
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or 0,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "seed": request_seed(key),
        "stop_token_ids": sorted(end_ids),
        "logit_bias": dict.fromkeys(sorted(banned), BAN),
        "detokenize": False,
        "watermarking": False,
    }


def request_seed(key: str) -> int:
    """Turn a rollout's key into a seed of 62 bits: vLLM adds a small index, and takes 63.

    >>> request_seed("7/0/0/x") == request_seed("7/0/0/x"), request_seed("7/0/0/x") == request_seed("7/0/1/x")
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 2


def to_rollout(
    reply: VLLMReply,
    example_id: str,
    index: int,
    end_ids: Collection[int],
    banned: Collection[int],
    most: int,
    *,
    keeps_cut: bool = False,
) -> Rollout:
    """Turn a reply into a rollout. Raise a RunError if it is not one that the student could have drawn.

    With `keeps_cut`, a response that vLLM had no room for is kept, with stop "cut".
    """
    ids = tuple(int(token) for token in reply.token_ids)
    name = f"vLLM's rollout {index} of example {example_id!r}"
    if not ids or len(ids) > most:
        raise RunError(f"{name} has {len(ids)} tokens; 1 to {most} were asked for.")
    if placeholders := set(banned).intersection(ids):
        raise RunError(f"{name} contains the placeholder {min(placeholders)}, which is banned.")
    is_ended = ids[-1] in end_ids
    if reply.finish_reason not in ("stop", "length") or is_ended != (reply.finish_reason == "stop"):
        raise RunError(f"{name} ends with token {ids[-1]} and the reason {reply.finish_reason!r}, which do not agree.")
    if not is_ended and len(ids) < most:
        if keeps_cut:
            return Rollout(example_id, index, ids, "cut")
        raise RunError(f"{name} is cut off after {len(ids)} of {most} tokens. Raise max_model_len.")
    return Rollout(example_id, index, ids, "end" if is_ended else "length")


def refuse_unknown_tokens(rollout: Rollout, num_tokens: int) -> None:
    """Raise a RunError if a rollout has tokens that the student's vocabulary lacks: scoring them would crash a GPU."""
    unknown = [token for token in rollout.token_ids if not 0 <= token < num_tokens]
    if unknown:
        raise RunError(
            f"vLLM's rollout {rollout.index} of example {rollout.example_id!r} has the token {shown(unknown[0])}, but "
            f"the student's tokens are 0 to {num_tokens - 1}. The server runs another model."
        )


def token_log_probs(reply: VLLMReply) -> list[float]:
    """Return the log-probability of each token of a reply."""
    if reply.logprobs is None:
        raise RunError("vLLM returned no log-probabilities, although they were asked for.")
    logs = [float(choices[token].logprob) for token, choices in zip(reply.token_ids, reply.logprobs, strict=True)]
    if not all(map(math.isfinite, logs)):
        raise RunError("vLLM returned log-probabilities that are not finite.")
    return logs


def refuse_other_prompt(prompt: Prompt, prompt_token_ids: Sequence[int] | None) -> None:
    """Raise a RunError unless vLLM read exactly the trainer's prompt."""
    own = prompt.input_ids.tolist()
    theirs = list(prompt_token_ids or ())
    if own != theirs:
        raise RunError(
            f"example {prompt.example_id!r}: the trainer's prompt has {len(own)} tokens, vLLM read {len(theirs)}; they "
            "differ. The rollouts would belong to another prompt."
        )


def patches_of_images(pixel_values: Tensor, grid_thw: Tensor) -> list[Tensor]:
    """Cut the patches of a prompt into those of each image."""
    sizes = grid_thw.prod(-1).tolist()
    if sum(sizes) != len(pixel_values):
        raise ConfigError(
            [f"{len(pixel_values)} patches for images of {sum(sizes)}. vLLM rollouts need a Qwen family."]
        )
    return list(torch.split(pixel_values, sizes))
