"""What a run would do and need, on one screen: prompts, memory, time, disk, and what to change if it does not fit.

`vcsd train RECIPE --dry-run` prints `screen(outlook)`, with `--json` `as_json(outlook)`.
"""

from __future__ import annotations

import json
import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcsd.errors import install_command
from vcsd.lora.attach import has_peft
from vcsd.parallel.ranks import num_ranks
from vcsd.projection.placement import placement
from vcsd.projection.project import TIME_ERROR
from vcsd.projection.spoken import count, duration, memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.config.recipe import Recipe
    from vcsd.projection.changes import Change
    from vcsd.projection.project import Job, Projection

WIDTH, HEIGHT = 80, 23
"""One screen: 80 x 24, less the line of the next prompt."""

_LABEL = 9
"""Width of the first column."""

_TOO_LONG = 365 * 86_400
"""A run of more seconds than this is called too long: a year."""

_MOST_TEXT = 2 * (WIDTH - _LABEL)
"""The most characters of a prompt that are shown."""


_MOST_REASON, _SHORT_REASON = 300, 60
"""The most characters of the message about a row that are shown, and the most if the screen is too full."""


@dataclass(frozen=True)
class ShownPrompt:
    """The first prompt as one pass sees it."""

    role: str
    """student, target or contrast."""
    view: str
    num_tokens: int
    text: str


@dataclass(frozen=True)
class CheckedRows:
    """The rows that a dry run read, with their images."""

    num_rows: int
    """The number of rows in the data."""
    num_checked: int
    summary: str
    """How many cannot be used and why, such as "2 broken_image"."""
    messages: tuple[str, ...]
    """What is wrong with each unusable row."""


@dataclass(frozen=True)
class DiskOutlook:
    """The most space that the run needs on its disk at one time, and the space that is free there."""

    needed_bytes: int
    free_bytes: int
    warning: str | None
    """What to do if not all of it fits."""


@dataclass(frozen=True)
class Outlook:
    """A recipe on a machine: what is known about its data and model, the projection, and the changes that would fit."""

    recipe: Recipe
    job: Job
    projection: Projection
    data: str
    source: str | None = None
    """Where the model's shapes come from, if its weights are not on this machine."""
    exam: str | None = None
    prompts: tuple[ShownPrompt, ...] = ()
    is_here: bool = False
    """Whether the machine is this one, whose speed was measured."""
    is_asked: bool = False
    """Whether the user named the machine; else it is this one, or the smallest that fits."""
    changes: tuple[Change, ...] = ()
    elsewhere: Projection | None = None
    """The smallest machine that fits, if this recipe does not fit on the one that was asked for."""
    rows: CheckedRows | None = None
    disk: DiskOutlook | None = None
    """None if the run is planned for another machine."""
    last_step: int = 0
    """The step of the checkpoint from which the run would resume; 0 without one."""

    @property
    def fits(self) -> bool:
        """Whether the run fits. A CPU's memory was checked before: rows and loss are projected for GPUs only."""
        return self.is_on_cpu or self.projection.fits

    @property
    def is_on_cpu(self) -> bool:
        """Whether the run is previewed on this machine, without a GPU."""
        return self.is_here and self.projection.machine.card.name == "cpu"

    @property
    def total_seconds(self) -> float:
        """Seconds of the whole run, or of the rest of it."""
        return self.projection.step_seconds * max(0, int(self.recipe.trainer["max_steps"]) - self.last_step)


def screen(outlook: Outlook) -> list[str]:
    """Return at most `HEIGHT` lines of at most `WIDTH` columns, without the prompt's text if nothing else helps."""
    for is_short, has_text in ((False, True), (True, True)):
        lines = list(_lines(outlook, is_short=is_short, has_text=has_text))
        if len(lines) <= HEIGHT:
            return lines
    return list(_lines(outlook, is_short=True, has_text=False))


def _lines(outlook: Outlook, *, is_short: bool, has_text: bool) -> Iterator[str]:
    yield from _entry("machine", _verdict(outlook))
    yield from _entry("model", _model(outlook))
    yield from _entry("data", outlook.data)
    if outlook.rows is not None:
        yield from _entry("rows", _rows(outlook.rows, _SHORT_REASON if is_short else _MOST_REASON))
    yield from _prompt_lines(outlook.prompts, is_short=is_short, has_text=has_text)
    if outlook.exam is not None:
        yield from _entry("eval", outlook.exam)
    yield from _entry("steps", _steps(outlook))
    ranks = num_ranks() if outlook.is_here else outlook.projection.machine.num_gpus
    for line in placement(outlook.recipe, outlook.job, ranks):
        yield from _entry("vllm", line)
    yield from _entry("memory", _memory(outlook))
    if not outlook.is_on_cpu:
        yield from _entry("host", _host(outlook.projection))
    if outlook.fits and outlook.total_seconds:
        yield from _entry("time", _time(outlook))
    yield from _entry("disk", _disk(outlook))
    if outlook.recipe.lora.rank is not None:
        yield from _missing_peft()
    if not outlook.fits:
        yield from _advice(outlook)


def _entry(label: str, text: str) -> list[str]:
    """Wrap a text under its label.

    >>> _entry("disk", "26 GiB per checkpoint")
    ['disk     26 GiB per checkpoint']
    """
    indent = " " * _LABEL
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{label:{_LABEL}}", subsequent_indent=indent, break_on_hyphens=False
    )


def _verdict(outlook: Outlook) -> str:
    """Describe the machine, whether the run fits on it, and how that is known."""
    machine, projection = outlook.projection.machine, outlook.projection
    if outlook.is_here:
        return f"{machine.name}, this machine"
    if not outlook.is_asked:
        fitting = "the smallest that fits" if projection.fits else "the largest known, and it is too small"
        return f"{machine.name}, {fitting} (projected; --card names another)"
    if projection.fits:
        return f"{machine.name}: fits (projected)"
    return f"{machine.name}: does not fit (projected)"


def _model(outlook: Outlook) -> str:
    sizes, path = outlook.job.sizes, outlook.recipe.model.path
    trained = "all" if sizes.num_trained == sizes.num_parameters else count(sizes.num_trained)
    known = f"; not on this machine, shapes from {outlook.source}" if outlook.source else ""
    return f"{path}: {count(sizes.num_parameters)} parameters, {trained} trained{known}"


def _rows(rows: CheckedRows, most_reason: int) -> str:
    """Describe how many rows were checked, and what is wrong with the first unusable one."""
    number = (
        f"all {rows.num_rows:,}" if rows.num_checked == rows.num_rows else f"{rows.num_checked:,} of {rows.num_rows:,}"
    )
    start = f"checked {number}, with their images:"
    if not rows.messages:
        return f"{start} all can be used"
    first = rows.messages[0]
    first = first if len(first) <= most_reason else f"{first[:most_reason]} ..."
    return f"{start} {len(rows.messages):,} cannot be used and would be skipped ({rows.summary}). The first: {first}"


def _prompt_lines(prompts: Sequence[ShownPrompt], *, is_short: bool, has_text: bool) -> Iterator[str]:
    """Show each prompt; a text that the student sees too is not repeated."""
    if not prompts:
        return
    student, *views = prompts
    yield from _entry(student.role, _with_text(student, has_text=has_text))
    if is_short and len(views) == 2 and all(view.text == student.text for view in views):
        target, contrast = views
        both = f"{_shown_as(target)}, {contrast.role} {_shown_as(contrast)}: the same text"
        yield from _entry(target.role, both)
        return
    for view in views:
        is_same = view.text == student.text
        yield from _entry(
            view.role, f"{_shown_as(view)} the same text" if is_same else _with_text(view, has_text=has_text)
        )


def _with_text(prompt: ShownPrompt, *, has_text: bool) -> str:
    return f"{_shown_as(prompt)} {_cut(prompt.text) if has_text else 'text: --json'}"


def _shown_as(prompt: ShownPrompt) -> str:
    return f"({prompt.view}, {prompt.num_tokens:,} tokens)"


def _cut(text: str) -> str:
    """Write a text on one line, without its middle if it is long.

    >>> _cut("a\\nb")
    'a\\\\nb'
    """
    line = text.strip().replace("\n", "\\n")
    half = _MOST_TEXT // 2 - 3
    return line if len(line) <= _MOST_TEXT else f"{line[:half]} ... {line[-half:]}"


def _steps(outlook: Outlook) -> str:
    step, steps = outlook.job.step, outlook.recipe.trainer["max_steps"]
    done = f"; resumes after step {outlook.last_step:,} if the settings are unchanged" if outlook.last_step else ""
    if 0 < steps <= outlook.last_step:
        done = "; all are finished already, so nothing would be trained"
    return (
        f"{steps:,}, each {step.num_prompts:,} prompts x {step.num_rollouts:,} rollouts of up to "
        f"{step.response_tokens:,} tokens; {step.num_tokens:,} tokens per step{done}"
    )


def _memory(outlook: Outlook) -> str:
    """Describe the memory that the run needs and that the machine has."""
    projection, host = outlook.projection, outlook.job.sizes.host_bytes
    gib = projection.machine.card.gib
    has = memory(gib * 2**30) if math.isfinite(gib) else "an unknown amount"
    if outlook.is_on_cpu:
        return f"{memory(outlook.job.sizes.memory_bytes)} of {has} before the first packed row"
    per_gpu = " per GPU" if projection.machine.num_gpus > 1 else ""
    more = f", and {memory(host)} of host memory" if host else ""
    if not projection.fits:
        return f"needs {memory(projection.needed_bytes)}{per_gpu}, has {has}{more}"
    before = f"{memory(projection.constant_bytes)} of it before the first packed row"
    length = f"packed rows of {projection.budget:,} tokens"
    return f"{memory(projection.needed_bytes)} of {has}{per_gpu} ({before}){more}; {length}"


def _host(projection: Projection) -> str:
    """Describe the host memory of a node that the start of the run needs."""
    machine = projection.machine
    needed = f"{memory(projection.start_bytes)} at the start"
    if not projection.fits_host:
        needed += f", more than the {memory(machine.host_gib * 2**30)} assumed"
    if machine.num_gpus == 1:
        return needed
    return f"{needed}, per node: each of {machine.gpus_per_node} ranks loads the student, then keeps a shard"


def _time(outlook: Outlook) -> str:
    """Describe how long the run takes, and what most of a step is spent on."""
    projection = outlook.projection
    phases = projection.seconds.items()
    shares = sorted(((seconds / projection.step_seconds, name) for name, seconds in phases), reverse=True)
    parts = ", ".join(f"{name} {share:.0%}" for share, name in shares[:3] if share >= 0.05)
    step_time = duration(projection.step_seconds).removeprefix("about ")
    full = f"if every response has {outlook.job.step.response_tokens:,} tokens"
    slower = "; longer in float32 (trainer.bf16 is false)" if _is_slower(outlook) else ""
    known = "" if outlook.is_here else f"; projections of measured H200 steps were off by up to {TIME_ERROR:.0%}"
    if outlook.total_seconds > _TOO_LONG:
        known = "; too long for one run: lower trainer.max_steps, prompts_per_step or rollout.max_new_tokens"
    return f"{duration(outlook.total_seconds)}, {step_time} per step ({parts}), {full}{slower}{known}"


def _is_slower(outlook: Outlook) -> bool:
    return not outlook.is_here and not outlook.recipe.trainer.get("bf16")


def _disk(outlook: Outlook) -> str:
    """Describe the space that a checkpoint needs and, on this machine, the free space."""
    needed = f"{memory(outlook.job.sizes.checkpoint_bytes)} per checkpoint, {when_saved(outlook.recipe)}"
    disk = outlook.disk
    if disk is None:
        return needed
    needed += f"; up to {memory(disk.needed_bytes)} more at one time, with an export; {memory(disk.free_bytes)} free"
    return needed if disk.warning is None else f"{needed}. WARNING: {disk.warning}"


def when_saved(recipe: Recipe) -> str:
    """Describe when checkpoints are saved and how many are kept."""
    trainer = recipe.trainer
    kept = f"keeping {trainer.get('save_total_limit') or 'all'}"
    strategy = trainer.get("save_strategy", "steps")
    if strategy != "steps":
        return f"trainer.save_strategy: {strategy}, {kept}"
    every = trainer.get("save_steps", 500)
    steps = every if every >= 1 else math.ceil(every * trainer["max_steps"])
    return f"every {steps:g} steps, {kept}" if steps < trainer["max_steps"] else f"after the last step, {kept}"


def _advice(outlook: Outlook) -> Iterator[str]:
    """Yield lines on what would fit: changes to the recipe, from small to large, or another machine."""
    yield ""
    steps = outlook.recipe.trainer["max_steps"]
    if outlook.recipe.lora.rank is None and any("adapters" in change.kinds for change in outlook.changes):
        yield from _missing_peft()
    if outlook.changes:
        yield "What would fit, smallest change first:"
    for change in outlook.changes:
        projection = change.projection
        host = f" and {memory(change.host_bytes)} of host memory" if change.host_bytes else ""
        needs = f"{memory(projection.needed_bytes)}{host}, {duration(projection.step_seconds * steps)}; {change.cost}"
        yield from _indented(" ".join(change.overrides), 2)
        yield from _indented(needs, 6)
    if (other := outlook.elsewhere) is not None:
        needed, seconds = memory(other.needed_bytes), other.step_seconds * steps
        per_gpu = " per GPU" if other.machine.num_gpus > 1 else ""
        yield from textwrap.wrap(
            f"Unchanged, it fits on {other.machine.name}: {needed}{per_gpu}, {duration(seconds)}.", WIDTH
        )
    elif not outlook.changes:
        yield "Neither a known change nor a known machine makes it fit: see docs/scaling.md."
    if any(change.projection.machine.num_gpus > 1 for change in outlook.changes):
        yield "Several GPUs: torchrun --nproc-per-node N -m vcsd train RECIPE OVERRIDES"


def _missing_peft() -> Iterator[str]:
    """Yield how to install peft, if it is missing."""
    if not has_peft():
        yield "LoRA needs the package peft, which is missing here. Install it:"
        yield f"  {install_command('peft')}"


def _indented(text: str, columns: int) -> list[str]:
    indent = " " * columns
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def as_json(outlook: Outlook) -> str:
    """Return everything as JSON: the resolved recipe, the data, the prompts in full, the projection, the changes."""
    job = outlook.job
    tree: dict[str, Any] = {
        "recipe": json.loads(outlook.recipe.to_json()),
        "data": outlook.data,
        "rows_checked": None if outlook.rows is None else vars(outlook.rows),
        "evaluation": outlook.exam,
        "model": {
            "parameters": job.sizes.num_parameters,
            "trained": job.sizes.num_trained,
            "shapes_from": outlook.source,
        },
        "prompts": [vars(prompt) for prompt in outlook.prompts],
        "step": {**vars(job.step), "num_tokens": job.step.num_tokens},
        "checkpoint_bytes": job.sizes.checkpoint_bytes,
        "last_step": outlook.last_step,
        "disk": None if outlook.disk is None else vars(outlook.disk),
        "host_bytes": job.sizes.host_bytes,
        "is_this_machine": outlook.is_here,
        "projection": _projected(outlook.projection, outlook.recipe),
        "changes": [
            {
                "overrides": change.overrides,
                "cost": change.cost,
                "host_bytes": change.host_bytes,
                **_projected(change.projection, outlook.recipe),
            }
            for change in outlook.changes
        ],
        "smallest_machine": None if outlook.elsewhere is None else _projected(outlook.elsewhere, outlook.recipe),
    }
    return json.dumps(tree, indent=2) + "\n"


def _projected(projection: Projection, recipe: Recipe) -> dict[str, Any]:
    gib = projection.machine.card.gib
    return {
        "machine": projection.machine.name,
        "num_gpus": projection.machine.num_gpus,
        "gib_per_gpu": gib if math.isfinite(gib) else None,
        "fits": projection.fits,
        "needed_bytes": round(projection.needed_bytes),
        "constant_bytes": round(projection.constant_bytes),
        "host_bytes_at_start_per_node": round(projection.start_bytes),
        "tokens_per_row": projection.budget,
        "seconds_per_step": projection.step_seconds,
        "seconds_by_phase": projection.seconds,
        "seconds": projection.step_seconds * recipe.trainer["max_steps"],
    }
