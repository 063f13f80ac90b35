"""Decoding with experts at fixed routing.

Rounding can change which experts a router chooses, and with them the result. A test that compares two precisions or two
implementations therefore records the choice of a float32 run and makes the others choose the same:

    routing = FixedRouting()
    true = decoded(float32_model, prompts, forced, routing)
    found = decoded(bfloat16_model, prompts, forced, routing, use_graph=True)

Shape legend: B prompts, R rows, V vocabulary, K experts per token.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from vcsd.models.packed.packing import Prompt
from vcsd.rollout import decoder


class FixedRouting:
    """The experts that every router chose in every forward of the first run; later runs choose the same."""

    def __init__(self) -> None:
        self._chosen: list[dict[str, Tensor]] = []
        self._current: dict[str, Tensor] = {}
        self._replays = False

    @contextmanager
    def within(self, model: nn.Module) -> Iterator[None]:
        """Record the first time, replay afterwards."""
        self._replays, self._current = bool(self._chosen), {}
        routers = [(name, module) for name, module in model.named_modules() if type(module).__name__.endswith("Router")]
        assert routers, f"{type(model).__name__} has no routers"
        handles = [router.register_forward_hook(self._hook(name)) for name, router in routers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def begin_forward(self, index: int) -> None:
        """Say which forward comes next. Choices of equal shape are copied in place, where a graph reads them."""
        if not self._replays:
            self._chosen.append({})
            return
        for name, chosen in self._chosen[index].items():
            if name in self._current and self._current[name].shape == chosen.shape:
                self._current[name].copy_(chosen)
            else:
                self._current[name] = chosen.clone()

    def _hook(self, name: str) -> Any:
        def hook(router: nn.Module, args: object, output: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
            logits, weights, chosen = output
            if not self._replays:
                self._chosen[-1][name] = chosen.clone()
                return output
            chosen = self._current[name]
            probabilities = logits.float().softmax(-1).gather(-1, chosen)
            return logits, (probabilities / probabilities.sum(-1, keepdim=True)).to(weights.dtype), chosen

        return hook


def decoded(
    model: PreTrainedModel,
    prompts: Sequence[Prompt],
    forced: Tensor,
    routing: FixedRouting,
    *,
    use_graph: bool = False,
) -> tuple[Tensor, decoder.Decoder]:
    """The logits (steps, R, V) after forced tokens (steps, R), two rows for each prompt, and the decoder."""
    prompt_R = torch.arange(len(prompts), device=model.device).repeat_interleave(2)
    logits = []
    with torch.no_grad(), routing.within(model):
        routing.begin_forward(0)
        decoding = decoder.prefill(model, prompts)
        decoding.fork(prompt_R, len(forced), use_graph=use_graph)
        for index, token_R in enumerate(forced):
            routing.begin_forward(index + 1)
            logits.append(decoding.step(token_R).float().clone())
    return torch.stack(logits), decoding


def error(found: Tensor, true: Tensor) -> float:
    """The distance of logits, relative to their size."""
    return ((found - true).norm() / true.norm()).item()
