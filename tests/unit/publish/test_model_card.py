"""The card of an export says what the run's files say, and nothing that they do not."""

import json
import shutil
from dataclasses import replace

import pytest
import yaml

from tiny_lora import lora_model
from tiny_models import build_model
from tiny_step import make_trainer
from vcsd.config import build_recipe
from vcsd.errors import ConfigError
from vcsd.evaluation.asking.model_answerer import folder_identity
from vcsd.evaluation.scoring.aggregate import Tally
from vcsd.evaluation.scoring.scorecard import BenchmarkScore, Counts, Scorecard
from vcsd.evaluation.scoring.uncertainty import Interval
from vcsd.publish.described_export import export_with_card, warn_of_collapse
from vcsd.publish.model_card import CardScore, Exported, model_card, scores_of

SAVE = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}


def config(path="Qwen/Qwen3-VL-2B-Instruct", data="/home/ann/private/rows.jsonl"):
    return json.loads(build_recipe({"model": {"path": path}, "data": {"path": data}}).to_json())


def exported(**more):
    given = {"config": config(), "step": 90, "what": "student", "dtype": "bfloat16", "is_adapter": False}
    return Exported(**{**given, "is_lora": False, "base": "Qwen/Qwen3-VL-2B-Instruct", **more})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "first"
    make_trainer(folder, arguments=SAVE).train()
    (folder / "config.json").write_text(json.dumps(config()))
    return folder


def scorecard(model):
    tally = Tally(("1", "2"), (True, False), (0, 1), {"acc": (0, 1)})
    score = BenchmarkScore(
        "mine", "Mine", 50.0, Interval(9.5, 90.5), 2, 4, Counts(0, 0, 0, 0, 0), {"acc": 50.0}, {}, "official", tally
    )
    made_with = {"asker": {"model": model}, "style": "vlmevalkit"}
    return Scorecard("final", "2026-06", 50.0, Interval(9.5, 90.5), {"mine": score}, made_with)


def front_matter(text):
    return yaml.safe_load(text.split("---")[1])


def test_the_card_tells_method_data_recipe_and_base():
    text = model_card(exported(), [], "me/first")
    fields = front_matter(text)
    assert fields["base_model"] == "Qwen/Qwen3-VL-2B-Instruct"
    assert (fields["library_name"], fields["pipeline_tag"]) == ("transformers", "image-text-to-text")
    assert "license" not in fields
    assert "the student after 90 steps, in bfloat16" in text
    assert "alpha 1, beta 0.1, anchor 1, temperature 2, ema_rate 0.05; divergence forward_kl, teacher ema" in text
    assert 'AutoProcessor.from_pretrained("me/first")' in text
    recipe = json.loads(text.split("```json\n")[1].split("```")[0])
    assert recipe["method"]["name"] == "vcsd"
    assert recipe["data"]["path"] == "rows.jsonl"


def test_the_card_says_what_its_code_needs():
    assert 'AutoProcessor.from_pretrained("first")\n' in model_card(exported(), [], "first")
    assert 'AutoProcessor.from_pretrained("first")  # needs torchvision\n' in model_card(
        exported(has_video=True), [], "first"
    )


def test_no_folder_of_this_machine_is_told():
    text = model_card(exported(base="/home/ann/models/base", config=config("/home/ann/models/base")), [], "x")
    assert "/home" not in text
    assert "ann" not in text.replace("planned", "").split()
    assert "base_model" not in front_matter(text)
    assert "name its origin here" in text


def test_without_scores_no_gain_is_claimed():
    text = model_card(exported(), [], "x")
    assert "This model was not evaluated." in text
    assert "no improvement over the base is claimed" in text


def test_scores_have_intervals_and_say_how_many_questions():
    text = model_card(exported(), [CardScore("a|b", 71.25, 68.0, 74.5, 100, 200, "read as final")], "x")
    assert "| a\\|b | 71.2 | 68.0 to 74.5 | 100 of 200 | read as final |" in text
    assert "asked in part only" in text


def test_an_unfinished_run_and_one_from_python_are_said_to_be():
    assert "had planned 90 steps; this is step 40" in model_card(exported(step=40), [], "x")
    text = model_card(exported(config={}, base=None), [], "x")
    assert text.count("not recorded (the run was started from Python)") == 4


def test_rows_passed_by_python_are_counted_and_its_settings_read():
    rollout = {"num_per_prompt": 2, "sampling": {"max_new_tokens": 7}}
    given = {"data": {"kind": "list in memory", "num_rows": 30}, "rollout": rollout, "prompts_per_step": 4}
    text = model_card(exported(config=given), [], "x")
    assert "Prompts and images of 30 rows that Python passed" in text
    assert "4 prompts, 2 responses to each, at most 7 tokens" in text


def test_hostile_names_stay_text():
    text = model_card(exported(config=config(data="rows`\n# Fake\n\x1b[31m.jsonl")), [], "x")
    assert "\n# Fake" not in text
    assert "\x1b" not in text


def test_every_export_has_a_card_with_the_scores_of_these_weights(run, tmp_path):
    export_with_card(run, tmp_path / "plain")
    assert "not evaluated" in (tmp_path / "plain" / "README.md").read_text()
    scorecard(folder_identity(tmp_path / "plain")).save(tmp_path / "scorecard.json")
    for name, more in {"same": {}, "exact": {"dtype": "float32"}}.items():
        export_with_card(run, tmp_path / name, scores=[tmp_path], **more)
        assert "| mine | 50.0 | 9.5 to 90.5 | 2 of 4 |" in (tmp_path / name / "README.md").read_text()
    with pytest.raises(ConfigError, match="was measured on other weights than the teacher"):
        export_with_card(run, tmp_path / "teacher", what="teacher", dtype="float32", scores=[tmp_path])
    assert not (tmp_path / "teacher").exists()


def test_the_card_says_which_scores_are_of_a_part_or_of_other_data():
    card = scorecard("me")
    asked = {"num_questions": 9, "num_asked": 2, "doubts": []}
    score = replace(card.benchmarks["mine"], num_expected=None)  # POPE, for example, has no fixed number
    (row,) = scores_of(replace(card, benchmarks={"mine": score}, made_with={"data": {"mine": asked}}))
    assert (row.num_questions, row.num_expected) == (2, 9)
    assert "Some benchmarks were asked in part only" in model_card(exported(), [row], "x")
    (row,) = scores_of(replace(card, made_with={"data": {"mine": {**asked, "doubts": ["its md5 is 1."]}}}))
    assert row.num_expected == 4
    assert row.how.endswith(", not the published data")


def test_the_card_says_which_scores_need_contrast_decoding():
    card = scorecard("me")
    decoded = replace(card, made_with={**card.made_with, "asker": {"model": "me", "contrast": "Method()"}})
    assert [scores_of(each)[0].how.endswith(", with contrast decoding") for each in (card, decoded)] == [False, True]


def test_scores_of_another_model_are_refused(run, tmp_path):
    scorecard("another").save(tmp_path / "scorecard.json")
    with pytest.raises(ConfigError, match="was measured on other weights than the student"):
        export_with_card(run, tmp_path / "out", scores=[tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == ["scorecard.json"]


def test_scores_that_the_run_measured_are_those_of_its_step(run, tmp_path):
    score = {"entry": 60.0, "interval": [50.0, 70.0], "num_questions": 9, "num_expected": None}
    lines = [{"step": step, "mode": "exact", "benchmarks": {f"at-{step}": score}} for step in (0, 1)]
    (run / "evaluation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        export_with_card(run, tmp_path / "exact", dtype="float32")
        export_with_card(run, tmp_path / "rounded")
    finally:
        (run / "evaluation.jsonl").unlink()
    text = (tmp_path / "exact" / "README.md").read_text()
    assert "| at-1 | 60.0 | 50.0 to 70.0 | 9 | during training; answers read as exact |" in text
    assert "at-0" not in text
    text = (tmp_path / "rounded" / "README.md").read_text()
    assert "| during training, before rounding to bfloat16; answers read as exact |" in text, "the run was in float32"


ALARM = {"is_taken": True, "guard": "warn", "findings": ["language_drift rose from 4.3% to 36.6%"]}


def test_the_card_says_that_the_guard_warned_at_this_step(run, tmp_path):
    export_with_card(run, tmp_path / "fine")
    assert "collapsing" not in (tmp_path / "fine" / "README.md").read_text()
    metrics = run / "metrics.jsonl"
    metrics.write_text(json.dumps({"step": 1, **ALARM}) + "\n")
    try:
        export_with_card(run, tmp_path / "collapsing")
    finally:
        metrics.unlink()
    text = (tmp_path / "collapsing" / "README.md").read_text()
    assert "- The run may have been collapsing at this step: language_drift rose from 4.3% to 36.6%." in text


@pytest.mark.parametrize(
    ("good_steps", "advice"),
    [((), "No earlier checkpoint is without this warning."), ((1, 2), "The latest one without this warning is {}.")],
)
def test_exporting_a_collapsing_run_names_the_checkpoint_to_take_instead(run, tmp_path, caplog, good_steps, advice):
    for step in (2, 4):
        shutil.copytree(run / "checkpoint-1", tmp_path / f"checkpoint-{step}")
        manifest = tmp_path / f"checkpoint-{step}" / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "step": step}))
    alarms = [ALARM if step not in good_steps else {"is_taken": True} for step in (1, 2, 3, 4)]
    lines = [json.dumps({"step": step, **alarm}) for step, alarm in enumerate(alarms, start=1)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    warn_of_collapse(tmp_path / "checkpoint-4")
    assert caplog.text.strip().endswith(advice.format(tmp_path / "checkpoint-2"))
    caplog.clear()
    if good_steps:
        warn_of_collapse(tmp_path / "checkpoint-2")
        assert not caplog.text


def test_merged_and_adapter_exports_tell_what_they_are(tmp_path):
    build_model().save_pretrained(tmp_path / "base")
    model = lora_model()
    make_trainer(tmp_path / "run", model=model, arguments=SAVE).train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    export_with_card(tmp_path / "run", tmp_path / "adapter", adapter=True)
    text = (tmp_path / "adapter" / "README.md").read_text()
    assert front_matter(text)["library_name"] == "peft"
    assert "PeftModel.from_pretrained(base" in text
    merged = Exported.of(checkpoint, what="student", dtype="bfloat16", is_adapter=False)
    assert "merged in float32" in model_card(merged, [], "x")
    assert "lora" in front_matter(model_card(merged, [], "x"))["tags"]


def test_a_folder_that_looks_like_a_hub_id_is_not_claimed_as_one(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (run / "config.json").write_text(json.dumps(config("models/mine")))
    about = {"what": "student", "dtype": "bfloat16", "is_adapter": False}
    assert Exported.of(run / "checkpoint-1", **about).hub_base == "models/mine"
    (tmp_path / "models" / "mine").mkdir(parents=True)
    text = model_card(Exported.of(run / "checkpoint-1", **about), [], "x")
    (run / "config.json").write_text(json.dumps(config()))
    assert "base_model" not in front_matter(text)
    assert "name its origin here" in text
