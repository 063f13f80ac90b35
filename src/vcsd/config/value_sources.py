"""Where each value of a recipe comes from: the paper, the authors' public code, or us.

A recipe labels its values in comments, which are inherited with them:

    learning_rate: 2e-6                         # paper

A value that no file sets is a default; `DEFAULTS` and the tables of methods below label those. `vcsd config RECIPE
--sources` prints the result. Every value of a shipped recipe has a label: a test walks them all.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import yaml

from vcsd.checkpoint.whole_file import value_at
from vcsd.config.inherit import merged, read_chain
from vcsd.config.recipe import Recipe, load_recipe
from vcsd.config.shipped import recipe_path, shipped_folder
from vcsd.config.yaml_text import parse_yaml
from vcsd.method import METHODS, PRESETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from vcsd.types import JsonValue

PAPER, CODE, OURS = LABELS = ("paper", "authors' code", "ours")
NO_LABEL, OVERRIDE = "no label", "override"

_LABEL = re.compile(rf"#\s*({'|'.join(LABELS)})\b(?::\s*(.*))?")

_PAPER_DEFAULTS = (
    *("prompts_per_step", "rollout.num_per_prompt", "evaluation.benchmarks"),
    *("trainer.max_steps", "trainer.learning_rate", "trainer.lr_scheduler_type", "trainer.warmup_steps"),
)
_CODE_DEFAULTS = (
    *("rollout.max_new_tokens", "rollout.temperature", "rollout.top_p", "rollout.top_k"),
    *("evaluation.style", "evaluation.sampling", "trainer.max_grad_norm", "trainer.save_steps"),
)
_OUR_DEFAULTS = (
    *("token_budget", "offload", "guard", "resume"),
    *("model.min_pixels", "model.max_pixels", "model.chat_template_kwargs"),
    *("model.freeze_vision", "model.freeze_projector", "model.freeze_language", "model.dither"),
    *("data.images", "data.split", "data.columns", "data.multi_image", "data.text_only", "data.instruction"),
    *("data.max_prompt_tokens", "data.max_skipped_share"),
    *("lora.rank", "lora.scale", "lora.vision", "lora.train_a"),
    *("rollout.steps_ahead", "rollout.engine", "rollout.vllm_memory_share"),
    *("rollout.server_url", "rollout.server_transfer", "rollout.server_sends_changes"),
    *("evaluation.every", "evaluation.tsv", "evaluation.data", "evaluation.limit", "evaluation.mode"),
    "evaluation.allow_unknown_data",
    *("trainer.bf16", "trainer.logging_steps", "trainer.save_total_limit", "trainer.report_to"),
    *("trainer.disable_tqdm", "trainer.output_dir"),
)
DEFAULTS: Mapping[str, str] = {
    **dict.fromkeys(_PAPER_DEFAULTS, PAPER),
    **dict.fromkeys(_CODE_DEFAULTS, CODE),
    **dict.fromkeys(_OUR_DEFAULTS, OURS),
}
"""The source of each default that is not part of a method. evaluation.sampling follows the authors' notes."""

_METHOD_DEFAULTS = {"js_weight": OURS, "log_floor": CODE, "teacher_every": OURS}
"""Fields of VCSD that the paper does not give: it has no weight for Jensen-Shannon and no floor for reverse KL."""

_METHOD_LABELS = {"opsd": OURS}
"""The source of the fields in which a method differs from VCSD; the paper for its own ablations."""

_WHOLLY = {"opsd_published": CODE}
"""Methods whose fields all have one source."""


@dataclass(frozen=True)
class SourcedValue:
    """One value of a recipe, and where it comes from."""

    key: str
    value: JsonValue
    label: str
    """`paper`, `authors' code`, `ours`, `override`, or `no label`."""
    note: str = ""
    where: str = "default"
    """The file that sets the value."""


def sourced_values(path: str | Path, overrides: Iterable[str] = ()) -> list[SourcedValue]:
    """Return every value of a resolved recipe with its source."""
    overrides = list(overrides)
    recipe = load_recipe(path, overrides)
    chain = read_chain(recipe_path(path), Recipe.model_fields)
    written = _written(chain)
    given = {override.partition("=")[0].strip() for override in overrides}
    tree = merged(chain)
    preset = value_at(tree, "method", "preset")
    if is_preset_given := "method.preset" in given:
        preset = _given_preset(overrides)
    rows = []
    for key, value in leaves(json.loads(recipe.to_json())):
        if any(key == name or key.startswith(f"{name}.") for name in given):
            rows.append(SourcedValue(key, value, OVERRIDE, where="the command line"))
        elif key in written:
            rows.append(SourcedValue(key, value, *written[key]))
        elif key.startswith("method."):
            field = key.partition(".")[2]
            label = _method_label(field, recipe.method.name, preset)
            where = "the command line" if is_preset_given and field in PRESETS.get(str(preset), ()) else "default"
            rows.append(SourcedValue(key, value, label, where=where))
        else:
            has_own_questions = key == "evaluation.benchmarks" and not value  # none, because of evaluation.tsv
            rows.append(SourcedValue(key, value, OURS if has_own_questions else default_label(key)))
    return rows


def _given_preset(overrides: Iterable[str]) -> object:
    """The preset that an override names.

    >>> _given_preset(["offload=true", "method.preset=author_code"])
    'author_code'
    """
    pairs = (override.partition("=") for override in overrides)
    texts = [text for key, _, text in pairs if key.strip() == "method.preset"]
    return parse_yaml(texts[-1], source="override method.preset")


def default_label(key: str) -> str:
    """The source of a key's default.

    >>> default_label("method.beta"), default_label("rollout.max_new_tokens"), default_label("offload")
    ('paper', "authors' code", 'ours')
    """
    section, _, field = key.rpartition(".")
    return _method_label(field, "vcsd", None) if section == "method" else DEFAULTS[key]


def _method_label(field: str, name: str, preset: object) -> str:
    """The source of a field that a method's name or its preset sets."""
    if preset in PRESETS and field in PRESETS[str(preset)]:
        return PAPER if preset == "paper" else CODE
    if name in _WHOLLY and field != "teacher_every":
        return _WHOLLY[name]
    same = asdict(METHODS["vcsd"])[field] == asdict(METHODS[name])[field]
    return _METHOD_DEFAULTS.get(field, PAPER) if same else _METHOD_LABELS.get(name, PAPER)


def _written(chain: list[tuple[Path, object]]) -> dict[str, tuple[str, str, str]]:
    """The label, note and file of each value that a file sets; files above replace those below."""
    sources: dict[str, tuple[str, str, str]] = {}
    for path, _ in reversed(chain):
        labels = dict(_labels(path))
        if {"method", "method.name"} & labels.keys():  # a named method inherits nothing
            sources = {key: source for key, source in sources.items() if not key.startswith("method.")}
        if "method" in labels:
            labels["method.name"] = labels.pop("method")
        sources |= labels
    return sources


def _labels(path: Path) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yield each key of a file with the label, note and file from the comment where its value ends, or at the key.

    For blocks and aliases, only the key's line is read: a block ends on a line of another key, and an alias's value is
    elsewhere. The label of a run's folder is always `ours`.
    """
    text = path.read_text(encoding="utf-8")
    lines, name = text.splitlines(), _name(path)
    for key, name_node, node in _nodes(yaml.compose(text, Loader=yaml.SafeLoader)):
        match = _LABEL.search(lines[name_node.start_mark.line])
        if node.start_mark.index > name_node.start_mark.index and not _is_block(node):
            match = _LABEL.search(lines[node.end_mark.line]) or match
        if key == "trainer.output_dir":
            yield key, (OURS, "", name)
        else:
            yield key, (match[1], match[2] or "", name) if match else (NO_LABEL, "", name)


def _name(path: Path) -> str:
    """A shipped recipe's name; the path of any other."""
    folder = shipped_folder().resolve()
    whole = path.resolve()
    return whole.relative_to(folder).with_suffix("").as_posix() if whole.is_relative_to(folder) else str(path)


def _is_block(node: yaml.Node) -> bool:
    """Whether a value is a list or a text that ends where the next key begins."""
    if isinstance(node, yaml.CollectionNode):
        return not node.flow_style
    return isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}


def _nodes(
    node: yaml.Node | None, key: str = "", name_node: yaml.Node | None = None
) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yield the path of each value of a YAML tree with the nodes of its key and of itself; a list is one value."""
    if isinstance(node, yaml.MappingNode) and node.value:
        for name, inner in node.value:
            yield from _nodes(inner, f"{key}.{name.value}" if key else str(name.value), name)
    elif node is not None and name_node is not None:
        yield key, name_node, node


def leaves(value: JsonValue, key: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Yield the path and value of each leaf of a recipe; an empty section is one."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, f"{key}.{name}" if key else name)
    else:
        yield key, value


def as_lines(rows: Iterable[SourcedValue]) -> list[str]:
    """Return a table as text: key, value, source and the file that sets it.

    >>> as_lines([SourcedValue("method.alpha", 0.5, "paper", "", "ablations/alpha_0.5")])[1].split()
    ['method.alpha', '0.5', 'paper', 'ablations/alpha_0.5']
    """
    cells = [("key", "value", "source", "set by")]
    cells += [
        (row.key, json.dumps(row.value).strip('"'), f"{row.label}{': ' if row.note else ''}{row.note}", row.where)
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(2)]
    source = max(len(row[2].partition(":")[0]) for row in cells)
    lines = []
    for key, value, label, where in cells:
        short, _, note = label.partition(":")
        line = f"{key:{widths[0]}}  {value:{widths[1]}}  {short:{source}}  {where}"
        lines.append(f"{line}  ({note.strip()})" if note else line)
    return lines
