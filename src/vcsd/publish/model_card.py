"""The model card of an export: how the model was trained, on which data, its scores, and what is not known.

`vcsd export` writes it as README.md next to the weights, so that a user can read it before anything is pushed. It
states only what the run's files contain. Of folders on this machine, only the last name appears.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcsd import __version__
from vcsd.checkpoint.folder import MANIFEST
from vcsd.checkpoint.whole_file import read_object, value_at
from vcsd.models.hub import hub_id
from vcsd.monitor.lines import read_lines
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from vcsd.evaluation.scoring.scorecard import Scorecard

CARD = "README.md"

_UNKNOWN = "not recorded (the run was started from Python)"


@dataclass(frozen=True)
class CardScore:
    """One row of the card's table: a benchmark, its score from 0 to 100 with the 95% interval, and its size."""

    benchmark: str
    entry: float
    low: float
    high: float
    num_questions: int
    num_expected: int | None
    how: str
    """How questions were asked and answers read, in a few words."""


@dataclass(frozen=True)
class Exported:
    """What an export holds: the run's settings, the checkpoint's step, and how the weights were written."""

    config: Mapping[str, Any]
    step: int
    what: str
    dtype: str
    is_adapter: bool
    is_lora: bool
    base: str | None
    """The hub id or folder of the model before training."""
    is_local: bool = False
    """Whether `base` is a folder, even if it looks like a hub id."""
    has_video: bool = False
    """Whether the processor also takes videos, for which AutoProcessor needs torchvision."""
    findings: tuple[str, ...] = ()
    """What the guard found at this step: signs of a collapse."""

    @classmethod
    def of(
        cls, checkpoint: Path, *, what: str, dtype: str, is_adapter: bool, named_base: str | None = None
    ) -> Exported:
        """Read a checkpoint and the run that it belongs to. `named_base` is the base's hub id, if the user gave one."""
        config = read_object(checkpoint.parent / "config.json")
        record = read_object(checkpoint / "base.json")
        base = value_at(config, "model", "path") or record.get("path")
        step = int(read_object(checkpoint / MANIFEST).get("step", 0))
        dtype = "float32" if is_adapter else dtype
        known = [str(path) for path in (base, record.get("path")) if path]
        is_local = named_base is None and any(hub_id(path) is None for path in known)
        base = named_base or base
        findings = guard_findings(checkpoint.parent, step)
        has_video = (checkpoint / "video_preprocessor_config.json").is_file()
        base = str(base) if base else None
        return cls(config, step, what, dtype, is_adapter, bool(record), base, is_local, has_video, findings)

    @property
    def hub_base(self) -> str | None:
        """The hub id of the base; None if it was a folder."""
        return None if self.is_local else hub_id(self.base)

    @property
    def shown_base(self) -> str | None:
        """The base as the card names it: its hub id, or the last part of its folder."""
        return self.hub_base or (None if self.base is None else _last_part(self.base))


def guard_findings(run: Path, step: int) -> tuple[str, ...]:
    """Return what the guard found at a step of a run; nothing if it raised no alarm then."""
    lines = (line for line in read_lines(run / "metrics.jsonl") if line.get("step") == step)
    return tuple(str(finding) for line in lines for finding in line.get("findings", ()))


def live_scores(run: Path, step: int, *, is_rounded: bool = False) -> list[CardScore]:
    """Return the scores that the run itself measured after this step (the recipe's `evaluation` section).

    `is_rounded`: the export rounds the weights, but the run answered with unrounded ones.
    """
    when = f"during training{', before rounding to bfloat16' if is_rounded else ''}"
    lines = [line for line in read_lines(run / "evaluation.jsonl") if line.get("step") == step]
    return [
        CardScore(
            name,
            score["entry"],
            score["interval"][0],
            score["interval"][1],
            score["num_questions"],
            score["num_expected"],
            f"{when}; answers read as {lines[-1]['mode']}",
        )
        for name, score in (lines[-1]["benchmarks"].items() if lines else ())
    ]


def scores_of(card: Scorecard) -> list[CardScore]:
    """Return the scores of an evaluation. Without a fixed size, a benchmark has as many questions as its file."""
    reports = card.made_with.get("data") or {}
    rows = []
    for name, score in card.benchmarks.items():
        report = reports.get(name) or {}
        expected = report.get("num_questions") if score.num_expected is None else score.num_expected
        how = f"style {card.made_with.get('style')}, answers read as {card.mode}"
        how += ", with contrast decoding" if "contrast" in (card.made_with.get("asker") or {}) else ""
        how += ", not the published data" if report.get("doubts") else ""
        limits = score.interval
        rows.append(CardScore(name, score.entry, limits.low, limits.high, score.num_questions, expected, how))
    return rows


def model_card(exported: Exported, scores: Sequence[CardScore], name: str) -> str:
    """Write the card as Markdown, with the front matter that the hub reads."""
    parts = [
        _front_matter(exported),
        f"# {_line(name)}",
        _summary(exported),
        _usage(exported, name),
        f"## Method\n\n{_method(exported)}",
        f"## Data\n\n{_data(exported)}",
        f"## Scores\n\n{_scores(scores)}",
        f"## Limitations\n\n{_limitations(exported, scores)}",
        f"## Recipe\n\n{_recipe(exported)}",
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(exported: Exported) -> str:
    """The hub's fields. No licence is claimed: those of the base and the data apply."""
    tags = ["vcsd", "self-distillation", *(["lora"] if exported.is_lora else [])]
    lines = [
        f"library_name: {'peft' if exported.is_adapter else 'transformers'}",
        "pipeline_tag: image-text-to-text",
        f"tags: [{', '.join(tags)}]",
    ]
    if exported.hub_base is not None:
        relation = "adapter" if exported.is_adapter else "finetune"
        lines += [f"base_model: {exported.hub_base}", f"base_model_relation: {relation}"]
    return "\n".join(["---", *lines, "---"])


def _summary(exported: Exported) -> str:
    base = f"`{exported.shown_base}`" if exported.base else "a model that was " + _UNKNOWN
    kind = "LoRA adapters for" if exported.is_adapter else "LoRA merged into" if exported.is_lora else "A version of"
    steps = "1 step" if exported.step == 1 else f"{exported.step:,} steps"
    return (
        f"{kind} {base}, post-trained by on-policy self-distillation with "
        f"vcsd {__version__}: the {exported.what} after {steps}, in {exported.dtype}."
    )


def _usage(exported: Exported, name: str) -> str:
    quoted = json.dumps(_line(name))
    if not exported.is_adapter:
        needs = "  # needs torchvision" if exported.has_video else ""
        return (
            "```python\nfrom transformers import AutoModelForImageTextToText, AutoProcessor\n\n"
            f"model = AutoModelForImageTextToText.from_pretrained({quoted})\n"
            f"processor = AutoProcessor.from_pretrained({quoted}){needs}\n```"
        )
    base = json.dumps(exported.shown_base or "the base model")
    return (
        "```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForImageTextToText\n\n"
        f"base = AutoModelForImageTextToText.from_pretrained({base})\n"
        f"model = PeftModel.from_pretrained(base, {quoted})\n```"
    )


def _method(exported: Exported) -> str:
    method = exported.config.get("method")
    if not isinstance(method, dict):
        return f"The method's settings were {_UNKNOWN}."
    target, contrast = method.get("target_view"), method.get("contrast_view")
    sees = f"The teacher scores the student's own responses with the view `{target}`"
    sees += f", and again with the view `{contrast}`; the difference shapes its target." if contrast else "."
    values = ", ".join(
        f"{key} {method[key]:g}"
        for key in ("alpha", "beta", "anchor", "temperature", "ema_rate")
        if isinstance(method.get(key), int | float)
    )
    kind = f"divergence {method.get('divergence')}, teacher {method.get('teacher')}"
    return f"`{method.get('name')}`. {sees} {values}; {kind}."


def _data(exported: Exported) -> str:
    data = exported.config.get("data")
    if not isinstance(data, dict):
        return f"The data was {_UNKNOWN}."
    rollout = exported.config.get("rollout", {})
    as_in_python = value_at(rollout, "sampling", "max_new_tokens")  # a run that Python started records this
    max_new_tokens = rollout.get("max_new_tokens", as_in_python)
    rows = f"`{_short(str(data['path']))}`" if data.get("path") else f"{data.get('num_rows')} rows that Python passed"
    return (
        f"Prompts and images of {rows}; answers in the data are not used unless the teacher's view shows them. "
        f"Each step: {exported.config.get('prompts_per_step')} prompts, "
        f"{rollout.get('num_per_prompt')} responses to each, at most {max_new_tokens} tokens."
    )


def _scores(scores: Sequence[CardScore]) -> str:
    if not scores:
        return "This model was not evaluated. `vcsd eval` and `vcsd export --scores FOLDER` add scores here."
    rows = ["| benchmark | score | 95% interval | questions | how |", "|---|---|---|---|---|"]
    for score in scores:
        part = f" of {score.num_expected:,}" if score.num_expected not in (None, score.num_questions) else ""
        rows.append(
            f"| {_cell(score.benchmark)} | {score.entry:.1f} | {score.low:.1f} to {score.high:.1f} | "
            f"{score.num_questions:,}{part} | {_cell(score.how)} |"
        )
    return "\n".join([*rows, "", "Scores go from 0 to 100. Intervals are over questions, not over repeated training."])


def _limitations(exported: Exported, scores: Sequence[CardScore]) -> str:
    return "\n".join(f"- {line}" for line in _limits(exported, scores))


def _limits(exported: Exported, scores: Sequence[CardScore]) -> Iterator[str]:
    yield "The base model's licence, intended use, biases and errors apply; self-distillation adds no new knowledge."
    yield "The model was not trained for, or tested on, safety."
    if exported.findings:
        yield f"The run may have been collapsing at this step: {_line('; '.join(exported.findings))}."
    yield (
        "In small experiments, models trained with VCSD answered less well from text alone, and were surer of their "
        "wrong answers too; test what you need."
    )
    if not scores:
        yield "No score was measured, so no improvement over the base is claimed."
    else:
        yield "The table does not include the base model; `vcsd eval --compare` compares both on the same questions."
    if any(score.num_expected not in (None, score.num_questions) for score in scores):
        yield "Some benchmarks were asked in part only; their scores are not comparable with published ones."
    max_steps = value_at(exported.config, "trainer", "max_steps")
    if isinstance(max_steps, int) and exported.step < max_steps:
        yield f"The run had planned {max_steps:,} steps; this is step {exported.step:,}."
    if exported.is_lora and not exported.is_adapter:
        yield "Adapters were merged in float32 and rounded once to the precision of this export."
    if exported.hub_base is None:
        yield "The base was a local folder; whoever publishes this should name its origin here."


def _recipe(exported: Exported) -> str:
    if not exported.config:
        return f"The recipe was {_UNKNOWN}."
    config = dict(exported.config)
    if isinstance(model := config.get("model"), dict) and "path" in model:
        config["model"] = {**model, "path": exported.shown_base}
    text = json.dumps(without_folders(config), indent=2, ensure_ascii=False)
    return f"```json\n{visible(text).replace('```', '` ` `')}\n```"


_TEXTS = ("instruction", "columns", "split", "chat_template_kwargs")
"""Keys of a recipe whose values are not paths, though they may begin with a slash: `/no_think`."""


def without_folders(value: object) -> object:
    """Reduce absolute paths to their last part, and drop the address of a server: a card reveals no machine.

    >>> without_folders({"path": "/home/ann/secret/data.jsonl", "name": "vcsd", "server_url": "http://10.0.0.7:8000"})
    {'path': 'data.jsonl', 'name': 'vcsd'}
    """
    if isinstance(value, dict):
        kept = {key: inner for key, inner in value.items() if key != "server_url"}
        return {key: inner if key in _TEXTS else without_folders(inner) for key, inner in kept.items()}
    if isinstance(value, list):
        return [without_folders(inner) for inner in value]
    return _short(value) if isinstance(value, str) else value


def _short(path: str | None) -> str:
    """The last part of an absolute path; hub ids and relative paths stay as they are.

    >>> [_short(path) for path in ("/home/ann/m/", "~/m", "C:\\\\m\\\\n", "Qwen/Qwen3-VL-2B-Instruct")]
    ['m', 'm', 'n', 'Qwen/Qwen3-VL-2B-Instruct']
    """
    text = _line(path or "")
    is_absolute = text.startswith(("/", "~", "..", "\\\\", "file:")) or re.match(r"[A-Za-z]:[\\/]", text)
    return _last_part(text) if is_absolute else text


def _last_part(path: str) -> str:
    return re.split(r"[\\/]", _line(path).rstrip("\\/"))[-1]


def _line(text: str) -> str:
    return " ".join(visible(text).replace("`", "'").split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
