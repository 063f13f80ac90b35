"""Every value of every shipped recipe says where it comes from, and says it correctly where the source is known."""

import json
import re
from dataclasses import fields

import pytest

from vcsd.config.recipe import Recipe
from vcsd.config.sections import Section
from vcsd.config.shipped import shipped_names
from vcsd.config.value_sources import (
    CODE,
    DEFAULTS,
    LABELS,
    NO_LABEL,
    OURS,
    PAPER,
    as_lines,
    default_label,
    sourced_values,
)
from vcsd.method import PRESETS, TRAINER_DEFAULTS, Method

KNOWN = {
    PAPER: [
        *[("method.name", "vcsd"), ("method.target_view", "original"), ("method.reduction", "response_mean")],
        *[("method.alpha", value) for value in (1.0, 1.5, 2.0)],
        *[("method.contrast_view", view) for view in ("black", "noise", "blur", "no_image")],
        *[("method.beta", 0.1), ("method.anchor", 0.0), ("method.anchor", 1.0), ("method.temperature", 2.0)],
        *[("method.divergence", "forward_kl"), ("method.divergence", "reverse_kl"), ("trainer.max_steps", 90)],
        *[("trainer.learning_rate", 2e-6), ("trainer.warmup_steps", 10), ("trainer.optim", "adamw_torch_fused")],
        *[("trainer.lr_scheduler_type", "constant_with_warmup"), ("prompts_per_step", 32)],
        *[("rollout.num_per_prompt", 8), ("data.path", "data/virl39k"), ("evaluation.benchmarks", ["all"])],
        *[("model.path", f"Qwen/Qwen3-VL-{size}-Instruct") for size in ("2B", "4B", "8B")],
        *[("model.path", f"Qwen/Qwen3.5-{size}") for size in ("2B", "4B", "9B")],
    ],
    CODE: [
        *[("trainer.weight_decay", 0.01), ("trainer.max_grad_norm", 1.0), ("trainer.save_steps", 10)],
        *[("data.max_prompt_tokens", 6144), ("data.max_prompt_tokens", 4096), ("rollout.max_new_tokens", 1024)],
        *[("rollout.temperature", 1.0), ("rollout.top_p", 1.0), ("rollout.top_k", None), ("evaluation.every", 10)],
        *[("method.temperature", 1.0), ("method.loss_scale", 4.0), ("method.reduction", "token_mean")],
        *[("method.end_tokens_keep_anchor", True), ("method.log_floor", -1e4), ("method.name", "opsd_published")],
        *[("method.student_top_k", 100), ("method.importance_clip", 2.0), ("method.alpha", 0.5)],
        *[("method.alpha", 1.25), ("model.chat_template_kwargs.enable_thinking", False)],
        *[("evaluation.style", "vlmevalkit"), ("evaluation.sampling", "paper")],
    ],
    OURS: [
        *[("method.name", "opsd"), ("trainer.learning_rate", 6e-5), ("trainer.learning_rate", 1e-4)],
        *[("lora.rank", 32), ("lora.vision", True), ("offload", False), ("guard", "warn"), ("trainer.bf16", True)],
        *[("trainer.gradient_checkpointing", True), ("trainer.max_steps", 300), ("rollout.engine", "vllm_server")],
        ("trainer.ddp_timeout", 43200),
    ],
}
"""The paper: its Sections 3 and 4. The authors' code: its settings, and notes on what was run."""

OF_THE_METHOD = {
    "vcsd": {("method.ema_rate", 0.05): PAPER, ("method.teacher", "ema"): PAPER, ("method.js_weight", 0.5): OURS},
    "opsd": {
        **{("method.ema_rate", 0.05): PAPER, ("method.teacher", "ema"): PAPER},
        **{("method.target_view", "hint"): OURS, ("method.alpha", 0.0): OURS, ("method.beta", 0.0): OURS},
    },
    "opsd_published": {
        **{("method.ema_rate", 0.05): CODE, ("method.target_view", "hint"): CODE, ("method.js_weight", 0.5): CODE},
        **{("method.divergence", "jensen_shannon"): CODE, ("method.beta", 0.0): CODE, ("method.anchor", 1.0): CODE},
    },
}
"""The same value has another source in another method."""


def pair(key, value):
    return key, json.dumps(value)


KNOWN_LABELS = {pair(*known): label for label, pairs in KNOWN.items() for known in pairs}


@pytest.mark.parametrize("name", shipped_names())
def test_every_value_of_a_shipped_recipe_has_the_label_of_its_source(name):
    rows = sourced_values(name)
    assert [row for row in rows if row.label not in LABELS] == []
    (method,) = [row.value for row in rows if row.key == "method.name"]
    of_the_method = {pair(*known): label for known, label in OF_THE_METHOD[method].items()}
    known = KNOWN_LABELS | of_the_method
    assert [row for row in rows if known.get(pair(row.key, row.value), row.label) != row.label] == []
    assert of_the_method.keys() <= {pair(row.key, row.value) for row in rows}


def test_every_known_source_is_of_a_value_that_some_recipe_has():
    rows = {pair(row.key, row.value) for name in shipped_names() for row in sourced_values(name)}
    assert KNOWN_LABELS.keys() - rows == set()


def test_every_default_of_every_key_has_a_source():
    keys = {f"method.{field.name}" for field in fields(Method)} | {f"trainer.{key}" for key in TRAINER_DEFAULTS}
    for name, field in Recipe.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            keys |= {f"{name}.{key}" for key, inner in kind.model_fields.items() if not inner.is_required()}
        elif name not in {"method", "trainer"}:
            keys.add(name)
    assert {default_label(key) for key in keys} == set(LABELS)
    assert set(DEFAULTS) <= keys


def test_labels_are_inherited_with_their_values_and_replaced_with_them(tmp_path):
    (tmp_path / "top.yaml").write_text(
        "base: paper/qwen3_vl_2b\nmethod: {alpha: 0.5}  # ours: a guess\ntrainer:\n  warmup_steps: 3\n"
    )
    rows = {row.key: row for row in sourced_values(tmp_path / "top.yaml", ["prompts_per_step=4"])}
    assert (rows["method.alpha"].label, rows["method.alpha"].note) == (OURS, "a guess")
    assert rows["method.alpha"].where == str(tmp_path / "top.yaml")
    assert (rows["method.beta"].label, rows["method.beta"].where) == (PAPER, "default")
    assert (rows["trainer.learning_rate"].label, rows["trainer.learning_rate"].where) == (PAPER, "paper/qwen3_vl_2b")
    assert rows["trainer.warmup_steps"].label == NO_LABEL
    assert rows["prompts_per_step"].label == "override"


def test_a_named_method_drops_the_labels_of_the_one_below(tmp_path):
    (tmp_path / "low.yaml").write_text("base: paper/qwen3_vl_2b\nmethod:\n  beta: 0  # ours\n")
    (tmp_path / "top.yaml").write_text("base: low.yaml\nmethod: opsd_published  # authors' code\n")
    rows = {row.key: row for row in sourced_values(tmp_path / "top.yaml")}
    assert (rows["method.beta"].label, rows["method.name"].label) == (CODE, CODE)


def test_own_questions_alone_are_not_the_papers_benchmarks():
    rows = sourced_values("paper/qwen3_vl_2b", ["evaluation.every=30", "evaluation.tsv=my.tsv"])
    assert [(row.value, row.label) for row in rows if row.key == "evaluation.benchmarks"] == [([], OURS)]


def test_the_label_of_a_block_is_on_the_line_of_its_key(tmp_path):
    (tmp_path / "top.yaml").write_text(
        "base: paper/qwen3_vl_2b\nevaluation:\n  benchmarks:  # paper: mine\n    - BLINK\n    - MMStar\n"
        "  limit: 5  # ours: few\n  sampling: >-  # authors' code\n    paper\n  data:  # paper\n    null\n"
        "data:\n  instruction: |  # paper: folded\n    Think.\n  columns: {\n    question: q,\n    }  # ours\n"
        "model:\n  path:\n    m  # ours: here\n"
    )
    rows = {row.key: (row.label, row.note) for row in sourced_values(tmp_path / "top.yaml")}
    assert rows["evaluation.benchmarks"] == (PAPER, "mine")
    assert rows["evaluation.limit"] == (OURS, "few")
    assert rows["evaluation.sampling"] == (CODE, "")
    assert rows["evaluation.data"] == (PAPER, "")
    assert rows["data.instruction"] == (PAPER, "folded")
    assert rows["model.path"] == (OURS, "here")


def test_a_preset_of_the_command_line_is_the_source_of_its_fields():
    rows = {row.key: row for row in sourced_values("paper/qwen3_vl_2b", ["method.preset=author_code"])}
    for field, value in PRESETS["author_code"].items():
        row = rows[f"method.{field}"]
        assert (row.value, row.label, row.where) == (value, CODE, "the command line")
    assert (rows["method.alpha"].label, rows["method.alpha"].where) == (PAPER, "default")


def test_the_table_names_the_file_that_sets_a_value():
    lines = as_lines(sourced_values("ablations/no_support"))
    (line,) = [line for line in lines if line.startswith("trainer.max_steps")]
    assert re.split(r"\s{2,}", line)[1:4] == ["300", "ours", "ablations/no_support"]
