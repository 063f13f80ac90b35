"""Project what a run needs on a machine, from shapes alone: memory, time and disk. No weights, data or GPU.

Memory. Weights, teacher, gradients and Adam's moments in float32 and the copy that samples rollouts are counted
exactly; with LoRA these are adapters, next to one base that all of them share. The memory of a row is a formula per
token and layer (`row_memory.py`).
Time. Matrix products run at the rate that a plain product reaches; the operations between them move their data at the
card's bandwidth. A decoding step reads weights and caches, and each of its layers has a minimum time. FSDP2's traffic
moves at the speed of the slowest link, not hidden behind computation. Three numbers were fitted to steps that were
measured on one H200 (`TimeModel`); for other cards they are assumed to be the same.
docs/scaling.md compares projections with measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcsd.models.freeze import is_adapter, part_of
from vcsd.models.shapes import TextShape, VisionShape, shared_flops, work_of
from vcsd.projection.machines import HOST_LINK, PLAIN_PRODUCT
from vcsd.projection.row_memory import RowMemory
from vcsd.rollout.memory import CacheCost, cache_cost, rows_that_fit
from vcsd.trainer.budget import LARGEST_BUDGET

if TYPE_CHECKING:
    from torch import nn

    from vcsd.projection.machines import Card, Machine

_FLOAT, _HALF = 4, 2

SHARE_IN_ATTENTION = 0.42
"""The share of a card's rate that attention reaches, from the rows of prefix_sharing_qwen3_*.json with the largest
images."""

SHARE_OF_BANDWIDTH = 0.8
"""The share of a card's bandwidth that reading weights and caches reaches; assumed."""


@dataclass(frozen=True)
class TimeModel:
    """What was fitted to measured steps, by `python benchmarks/time_model.py`."""

    bytes_between_products: float
    """Traffic per token, layer and width of a forward: norms, activations, rotations, attention, casts."""
    layer_seconds: float
    """Time of a layer in a decoding step, besides reading its weights: many small kernels, one after the other."""
    adapter_seconds: float
    """Time that a layer's adapters add: more small kernels."""


FITTED = TimeModel(bytes_between_products=324.0, layer_seconds=154e-6, adapter_seconds=73e-6)

TIME_ERROR = 0.14
"""The largest relative error of a step's time when the model is fitted to the other measured steps only."""

DATA_SECONDS = 3.8 / 32 / 1024
"""Per visual token, to open and resize a prompt's image on the CPU: the data phase of offload_8b in
benchmarks/results/cards.json."""

CHUNKED_LOSS = 3.0
"""How many times as long the loss takes in plain torch as in the kernel: benchmarks/results/loss_head.json."""

_BYTES_PER_UPDATE = 44
"""Traffic of AdamW, clipping and the EMA per trained parameter."""

_BYTES_PER_VISIT = 12
"""Traffic from the host per trained parameter of an offloaded run: two moments and the teacher. As much goes back to it
at the same time."""

USABLE = 0.96
"""Share of a card's memory that a run may need: the driver's context and gaps between tensors take the rest."""

_MARGIN = 0.1
"""Share of the memory besides weights and moments that stays free, as in `budget.py`."""

NUM_TEXT = 40
"""Text tokens of a prompt; the others are its image."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model that decide its memory.

    >>> sizes = Sizes(num_parameters=2_000, num_trained=1_000, has_teacher=True, has_half_copy=True)
    >>> sizes.memory_bytes, sizes.checkpoint_bytes
    (32000, 24000)
    >>> Sizes(2_000, 100, has_half_copy=True, num_adapter=200, base_bytes=2).memory_bytes
    6400
    >>> sizes = Sizes(num_parameters=2_000, num_trained=1_000, has_half_copy=True, is_offloaded=True)
    >>> sizes.memory_bytes, sizes.host_bytes
    (20000, 16000)
    """

    num_parameters: int
    num_trained: int
    has_teacher: bool = True
    has_half_copy: bool = False
    num_adapter: int = 0
    """How many of the parameters are LoRA adapters; the others are then a base that all models share."""
    base_bytes: int = _FLOAT
    """Bytes of each parameter of such a base."""
    is_offloaded: bool = False
    """Whether moments and float32 teacher are in host memory."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        *,
        has_teacher: bool,
        has_half_copy: bool,
        base_bytes: int = _FLOAT,
        is_offloaded: bool = False,
    ) -> Sizes:
        """Count a model's parameters. The model may be on the meta device."""
        named = dict(model.named_parameters())
        trained = sum(parameter.numel() for parameter in named.values() if parameter.requires_grad)
        adapter = sum(parameter.numel() for name, parameter in named.items() if is_adapter(name))
        total = sum(parameter.numel() for parameter in named.values())
        return cls(total, trained, has_teacher, has_half_copy, adapter, base_bytes, is_offloaded)

    @property
    def num_own(self) -> int:
        """The parameters that each model has of its own and that a checkpoint holds."""
        return self.num_adapter or self.num_parameters

    @property
    def memory_bytes(self) -> int:
        """Bytes on the device: weights, teacher, gradients, moments and the copy for rollouts."""
        base = self.num_parameters - self.num_own
        has_half_base = self.has_half_copy and self.base_bytes != _HALF
        teacher = self._num_averaged * (_HALF if self.is_offloaded else _FLOAT) * self.has_teacher
        own = self.num_own * (_FLOAT + _HALF * self.has_half_copy) + teacher
        trained = self.num_trained * _FLOAT * (1 if self.is_offloaded else 3)
        return base * (self.base_bytes + _HALF * has_half_base) + own + trained

    @property
    def sharded_bytes(self) -> int:
        """The part of these bytes that FSDP2 divides among ranks: all but the copy for rollouts."""
        has_half_base = self.has_half_copy and self.base_bytes != _HALF
        halves = self.num_own * self.has_half_copy + (self.num_parameters - self.num_own) * has_half_base
        return self.memory_bytes - _HALF * halves

    @property
    def num_cast(self) -> int:
        """The parameters that autocast and rollouts copy in half precision: those not yet in half precision."""
        return self.num_own if self.base_bytes == _HALF else self.num_parameters

    @property
    def host_bytes(self) -> int:
        """Bytes in host memory: teacher and moments, if they are offloaded."""
        teacher = self._num_averaged * _FLOAT * self.has_teacher
        return (teacher + self.num_trained * _FLOAT * 2) * self.is_offloaded

    def start_bytes(self, *, is_sharded: bool) -> int:
        """Bytes of host memory that a rank fills before its weights go to the device.

        A teacher that will be sharded shares the student's memory until then. Otherwise the teacher and the copy for
        rollouts are also made in host memory.

        >>> sizes = Sizes(num_parameters=2_000, num_trained=2_000, has_half_copy=True)
        >>> sizes.start_bytes(is_sharded=True), sizes.start_bytes(is_sharded=False)
        (8000, 20000)
        """
        base, own = (self.num_parameters - self.num_own) * self.base_bytes, self.num_own * _FLOAT
        if is_sharded:
            return base + own
        scoring = _HALF * self.is_offloaded  # a copy for scoring, besides the float32 teacher
        teacher = self._num_averaged * (_FLOAT + scoring) * self.has_teacher
        return base + own + teacher + _HALF * self.num_cast * self.has_half_copy

    @property
    def _num_averaged(self) -> int:
        """The teacher's own parameters. Frozen factors of adapters are shared."""
        return self.num_trained if self.num_adapter else self.num_parameters

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of student, teacher and both moments."""
        return self.num_own * _FLOAT * (1 + self.has_teacher) + self.num_trained * _FLOAT * 2

    @property
    def export_bytes(self) -> int:
        """Bytes of an exported student in half precision. Adapters are merged into their base."""
        return (self.num_parameters - self.num_adapter) * _HALF


@dataclass(frozen=True)
class Step:
    """The tokens of a step: the number of prompts, rollouts per prompt, and their lengths.

    >>> step = Step(num_prompts=32, num_rollouts=8, prompt_tokens=1000, response_tokens=300)
    >>> step.num_tokens
    108800
    """

    num_prompts: int
    num_rollouts: int
    prompt_tokens: int
    response_tokens: int

    @property
    def num_tokens(self) -> int:
        """Tokens to score, counting each prompt once."""
        return self.num_prompts * self.group_tokens

    @property
    def group_tokens(self) -> int:
        """Tokens of one prompt with all its responses."""
        return self.prompt_tokens + self.num_rollouts * self.response_tokens

    def longest_row(self, budget: int) -> int:
        """Tokens of the longest row within a budget: whole prompts with their responses, or a part of one.

        >>> step = Step(num_prompts=32, num_rollouts=8, prompt_tokens=1000, response_tokens=300)
        >>> step.longest_row(10_000), step.longest_row(3_000), step.longest_row(10**6)
        (6800, 2800, 108800)
        """
        if budget >= self.group_tokens:
            return min(self.num_prompts, budget // self.group_tokens) * self.group_tokens
        return self.prompt_tokens + max(1, (budget - self.prompt_tokens) // self.response_tokens) * self.response_tokens

    def share(self, num_ranks: int) -> Step:
        """The largest share that one of several ranks gets."""
        return Step(-(-self.num_prompts // num_ranks), self.num_rollouts, self.prompt_tokens, self.response_tokens)


@dataclass(frozen=True)
class Job:
    """What a projection needs to know about a run: shapes, the contents of a step, and how teacher and loss work."""

    config: Any
    """The model's config, as transformers builds it."""
    sizes: Sizes
    cache: CacheCost
    step: Step
    longest_prompt: int
    num_looks: int = 2
    """Forward passes of the teacher: two with a contrast, else one."""
    is_checkpointed: bool = False
    trains_tower: bool = True
    """Whether any weight of the vision tower is trained."""
    token_budget: int | None = None
    loss_factor: float = 1.0
    """How many times as long the loss takes as with the kernel."""

    @classmethod
    def of(cls, model: Any, sizes: Sizes, step: Step, longest_prompt: int, **more: Any) -> Job:
        """Read the shapes of a model, which may be on the meta device."""
        import torch

        trains_tower = any(p.requires_grad and part_of(name) != "language" for name, p in model.named_parameters())
        more = {"trains_tower": trains_tower, **more}
        return cls(model.config, sizes, cache_cost(model, torch.bfloat16), step, longest_prompt, **more)

    @property
    def rows(self) -> RowMemory:
        """The memory of rows."""
        return RowMemory.of(
            self.config,
            is_checkpointed=self.is_checkpointed,
            trains_tower=self.trains_tower,
            has_adapters=bool(self.sizes.num_adapter),
        )


@dataclass(frozen=True)
class Projection:
    """What a run needs on a machine: bytes per GPU, seconds of each phase of a step, bytes of a checkpoint."""

    machine: Machine
    constant_bytes: float
    """Per GPU, whatever the rows: weights, teacher, gradients, moments, copies, the workspace of the loss."""
    needed_bytes: float
    """Per GPU with the smallest row that the run may need: the longest prompt with one full response; with the
    recipe's own rows, if it sets their length."""
    budget: int
    """Tokens per row."""
    row_bytes: float
    """Per GPU while the longest row is scored."""
    rollout_bytes: float
    """Per GPU during rollouts, with as many at once as fit."""
    seconds: dict[str, float]
    checkpoint_bytes: float
    start_bytes: float
    """Host memory of a node before weights go to its GPUs: every rank loads the whole student."""

    @property
    def peak_bytes(self) -> float:
        """The most that a GPU holds in any phase."""
        return max(self.row_bytes, self.rollout_bytes)

    @property
    def fits(self) -> bool:
        """Whether the smallest necessary row fits on the GPU with everything else, and the start into host memory."""
        return self.needed_bytes <= USABLE * self.machine.card.gib * 2**30 and self.fits_host

    @property
    def fits_host(self) -> bool:
        """Whether a node's host memory is enough for the start."""
        return self.start_bytes <= self.machine.host_gib * 2**30

    @property
    def step_seconds(self) -> float:
        """Seconds of a whole step."""
        return sum(self.seconds.values())


def project(job: Job, machine: Machine, times: TimeModel = FITTED) -> Projection:
    """Project a run on a machine: alone on one GPU, with FSDP2 over several."""
    constant = _constant_bytes(job, machine.num_gpus)
    rows, step = job.rows, job.step.share(machine.num_gpus)
    smallest = constant + rows.bytes_of(job.longest_prompt + step.response_tokens, 4 * job.longest_prompt)
    smallest = max(smallest, _rollout_bytes(job, machine.num_gpus))
    room = machine.card.gib * 2**30 * (1 - _MARGIN) + _MARGIN * constant
    budget = job.token_budget or _budget(rows, step, room - constant)
    tokens = step.longest_row(budget)
    row = max(constant + rows.bytes_of(tokens, _patches(step, tokens)), smallest)
    needed = row if job.token_budget else smallest
    rollouts = _rollout_peak(job, machine, step)
    seconds = _seconds(job, machine, step, budget, times)
    start = machine.gpus_per_node * job.sizes.start_bytes(is_sharded=machine.num_gpus > 1)
    return Projection(machine, constant, needed, budget, row, rollouts, seconds, job.sizes.checkpoint_bytes, start)


def smallest_machine(job: Job, machines: list[Machine]) -> Projection | None:
    """Project a run on the first machine on which it fits; None if it fits on none."""
    return next((projection for machine in machines if (projection := project(job, machine)).fits), None)


def _constant_bytes(job: Job, num_gpus: int) -> float:
    """Bytes on each GPU while rows are scored, apart from the rows."""
    sizes, text = job.sizes, TextShape.of(job.config)
    head = text.width * text.vocabulary
    workspace = RowMemory.LOSS_TILES + (0 if sizes.num_adapter else _FLOAT * head)  # and the head's gradient
    if num_gpus == 1:
        return sizes.memory_bytes + _HALF * sizes.num_cast + workspace
    gathered = 2 * _HALF * 2 * head  # embedding and head of student and teacher stay gathered during a row
    unreduced = _FLOAT * sizes.num_trained  # gradients are reduced once per step, after the last row
    return sizes.sharded_bytes / num_gpus + gathered + unreduced + workspace


def _rollout_bytes(job: Job, num_gpus: int) -> float:
    """Bytes on each GPU while one prompt is answered; there are no gradients then."""
    cache = job.cache.of(job.longest_prompt, job.step.response_tokens, 1, is_shared=True)
    return _kept_while_sampling(job.sizes, num_gpus) + cache


def _rollout_peak(job: Job, machine: Machine, step: Step) -> float:
    """Bytes on each GPU while as many prompts are answered as fit at once."""
    num_prompts = min(step.num_prompts, -(-_at_once(job, machine, step) // step.num_rollouts))
    cache = job.cache.of(step.prompt_tokens, step.response_tokens, step.num_rollouts, is_shared=True)
    return _kept_while_sampling(job.sizes, machine.num_gpus) + num_prompts * cache


def _at_once(job: Job, machine: Machine, step: Step) -> int:
    """How many rollouts a GPU decodes at once."""
    free = max(0, int(machine.card.gib * 2**30 - _kept_while_sampling(job.sizes, machine.num_gpus)))
    lengths = (step.prompt_tokens, step.response_tokens, step.num_rollouts)
    return rows_that_fit(job.cache, free, *lengths, is_shared=True)


def _kept_while_sampling(sizes: Sizes, num_gpus: int) -> float:
    """Bytes on each GPU during rollouts apart from the cache: several GPUs gather a whole copy for them."""
    gradients = _FLOAT * sizes.num_trained
    if num_gpus == 1:
        return sizes.memory_bytes - gradients
    return (sizes.sharded_bytes - gradients) / num_gpus + _HALF * sizes.num_parameters


def _patches(step: Step, tokens: int) -> int:
    """Patches of the images in a row: four for each of a prompt's visual tokens."""
    num_prompts = max(1, tokens // step.group_tokens)
    return 4 * num_prompts * max(0, step.prompt_tokens - NUM_TEXT)


def _budget(rows: RowMemory, step: Step, room: float) -> int:
    """The largest row that fits, rounded down to a multiple of 256; the smallest if none does."""
    low, high = 1, LARGEST_BUDGET // 256
    while low < high:
        middle = (low + high + 1) // 2
        fits = rows.bytes_of(256 * middle, _patches(step, 256 * middle)) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return 256 * low


def _seconds(job: Job, machine: Machine, step: Step, budget: int, times: TimeModel) -> dict[str, float]:
    """Seconds of each phase on the busiest GPU, if every response has full length."""
    card, rate = machine.card, machine.card.flops * PLAIN_PRODUCT
    num_visual = max(1, step.prompt_tokens - NUM_TEXT)
    work = work_of(job.config, num_visual)
    forward = _forward_seconds(job.config, card, step, times)
    positions = step.num_prompts * step.num_rollouts * step.response_tokens
    product = work.per_position / 5  # of one projection
    # forward and the gradient of the inputs; recomputation; the gradient of the weights, unless they are frozen
    passes = 2 + job.is_checkpointed + (not job.sizes.num_adapter)
    return {
        "data": job.step.num_prompts * num_visual * DATA_SECONDS,  # every rank reads all prompts
        "rollout": decode_seconds(job, card, step, _at_once(job, machine, step), times),
        "teacher": job.num_looks * forward,
        "student": passes * forward,
        "loss": job.loss_factor * positions * product * (3 + job.num_looks) / rate,
        "update": job.sizes.num_trained * _BYTES_PER_UPDATE / machine.num_gpus / (0.6 * card.bandwidth),
        "traffic": _traffic_seconds(job, machine, step, budget),
        "offload": job.sizes.num_trained * job.sizes.is_offloaded * _BYTES_PER_VISIT / HOST_LINK,
    }


def _forward_seconds(config: Any, card: Card, step: Step, times: TimeModel) -> float:
    """Seconds of a forward over all prompts with their responses: products, attention, and the operations between."""
    work = work_of(config, max(1, step.prompt_tokens - NUM_TEXT))
    responses = [step.response_tokens] * step.num_rollouts
    every, attention = (shared_flops(part, step.prompt_tokens, responses) for part in (work, work.attention))
    products = (every - attention) / PLAIN_PRODUCT + attention / SHARE_IN_ATTENTION
    between = times.bytes_between_products * _widths(config, step) / card.bandwidth
    return step.num_prompts * products / card.flops + between


def _widths(config: Any, step: Step) -> float:
    """Sum the widths of all hidden states of a forward: tokens in the text's layers, patches in the tower's."""
    text, vision = TextShape.of(config), VisionShape.of(config)
    patches = 4 * step.num_prompts * max(0, step.prompt_tokens - NUM_TEXT)
    return step.num_tokens * text.num_layers * text.width + patches * vision.depth * vision.width


def decode_seconds(job: Job, card: Card, step: Step, at_once: int, times: TimeModel = FITTED) -> float:
    """Prefill, then one pass over weights and caches per token, in batches of `at_once` responses."""
    sizes, cache = job.sizes, job.cache
    prefill = _forward_seconds(job.config, card, Step(step.num_prompts, 0, step.prompt_tokens, 0), times)
    batches = -(-step.num_prompts * step.num_rollouts // at_once)
    mean_cache = step.num_prompts * cache.of(
        step.prompt_tokens, step.response_tokens // 2, step.num_rollouts, is_shared=True
    )
    read = (batches * _HALF * sizes.num_parameters + mean_cache) / (card.bandwidth * SHARE_OF_BANDWIDTH)
    layer_seconds = times.layer_seconds + bool(sizes.num_adapter) * times.adapter_seconds
    layers = batches * TextShape.of(job.config).num_layers * layer_seconds
    return prefill + step.response_tokens * (read + layers)


def _traffic_seconds(job: Job, machine: Machine, step: Step, budget: int) -> float:
    """FSDP2: weights are gathered for every pass of every row, once for the rollouts, and gradients reduced once."""
    if machine.num_gpus == 1:
        return 0.0
    rows = max(1, -(-step.num_tokens // budget))
    gathers = rows * (2 + job.is_checkpointed + job.num_looks) * _HALF + _FLOAT  # rollouts gather float32 shards
    num_bytes = job.sizes.num_parameters * gathers + _FLOAT * job.sizes.num_trained
    return num_bytes * (machine.num_gpus - 1) / machine.num_gpus / machine.link
