"""`vcsd capsule --scores` takes the results of a run's own models, names each, and refuses those of any other."""

import json
import shutil

import pytest

from tiny_models import build_model
from tiny_processor import write_processor_files
from toy_benchmarks import coded, write_tsv
from toy_command import vcsd, write_run_files
from vcsd.publish.capsule import read_capsule

RECIPE = """
model: {{path: {folder}/model}}
data: {{path: {folder}/train.jsonl, instruction: "/no_think\\nAnswer  briefly."}}
rollout: {{num_per_prompt: 2, max_new_tokens: 6}}
prompts_per_step: 2
token_budget: 4000
guard: off
trainer: {{max_steps: 2, save_steps: 1, learning_rate: 1e-2, warmup_steps: 1, use_cpu: true, bf16: false,
          output_dir: {folder}/run}}
"""

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of two steps, and questions."""
    folder = tmp_path_factory.mktemp("scores")
    write_run_files(folder, RECIPE, 4)
    questions = [{"index": f"`{n}`  a", "image": coded(n), "question": "Is it red?", "answer": "Yes"} for n in (1, 2)]
    write_tsv(folder / "mine.tsv", questions)
    assert vcsd("train", folder / "recipe.yaml") == 0
    return folder


def evaluate(folder, model, name, *options):
    asked = ("--tsv", folder / "mine.tsv", "--mode", "exact", "--sampling", "paper,temperature=1,max_new_tokens=4")
    assert vcsd("eval", model, *asked, *options, "--out", folder / "eval" / name) == 0
    return folder / "eval" / name


def pack(folder, *scores, run="run", more=()):
    """The exit code, and the scorecards of the capsule."""
    options = [part for path in scores for part in ("--scores", path)]
    output = folder / "packed.json"
    output.unlink(missing_ok=True)
    code = vcsd("capsule", folder / run, "--output", output, *options, *more)
    return code, read_capsule(output)["scorecards"] if output.exists() else None


@pytest.fixture(scope="module")
def of_the_student(folder):
    return evaluate(folder, folder / "run", "student")


def test_the_models_of_a_run_are_named(folder, of_the_student, capsys):
    vcsd("export", folder / "run", "--dtype", "float32", "--out", folder / "exact")
    vcsd("export", folder / "run", "--what", "teacher", "--out", folder / "teacher")
    scores = {
        of_the_student: "the student after step 2 in bfloat16",
        evaluate(folder, folder / "model", "base"): "the base",
        evaluate(folder, folder / "run" / "checkpoint-1", "earlier"): "the student after step 1 in bfloat16",
        evaluate(folder, folder / "exact", "exact"): "the student after step 2 in float32",
        evaluate(folder, folder / "teacher", "teacher"): "the teacher after step 2 in bfloat16",
        evaluate(folder, folder / "model", "decoded", "--decode", "contrast"): "the base, with contrast decoding",
    }
    capsys.readouterr()
    code, cards = pack(folder, *scores)
    assert code == 0
    assert [card["measured_on"] for card in cards] == list(scores.values())
    assert "It holds a scorecard of the base: Acc " in capsys.readouterr().out


def test_scores_of_another_model_are_refused(folder, of_the_student, capsys):
    other = folder / "other"
    build_model(seed=5).save_pretrained(other)
    write_processor_files(other)
    code, cards = pack(folder, of_the_student, evaluate(folder, other, "other"))
    assert (code, cards) == (2, None)
    words = " ".join(capsys.readouterr().err.split())
    assert f"--scores {folder}/eval/other was measured on other weights than the base, students and teachers" in words
    assert "eval/student was" not in words


def test_every_seed_is_added_and_a_result_that_is_passed_twice_counts_once(folder):
    several = evaluate(folder, folder / "run", "seeds", "--seeds", "0,1")
    code, cards = pack(folder, several, several)
    assert code == 0
    assert [card["made_with"]["seed"] for card in cards] == [0, 1]
    assert {card["measured_on"] for card in cards} == {"the student after step 2 in bfloat16"}


def test_a_base_that_was_moved_is_named(folder, tmp_path, capsys):
    scores = evaluate(folder, folder / "model", "base")
    shutil.copytree(folder / "run", tmp_path / "run")
    shutil.copytree(folder / "model", tmp_path / "moved")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["model"]["path"] = "gone/model"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert pack(tmp_path, scores) == (2, None)
    assert "which does not exist here: add --base FOLDER." in " ".join(capsys.readouterr().err.split())
    code, cards = pack(tmp_path, scores, more=("--base", tmp_path / "moved"))
    assert (code, cards[0]["measured_on"]) == (0, "the base")


def test_a_server_must_say_which_weights_answered_and_is_not_named(folder, of_the_student, tmp_path, capsys):
    card = json.loads((of_the_student / "scorecard.json").read_text())
    asker = {"server": "http://10.0.0.7:8000/v1", "model": "mine"}
    card["made_with"]["judge"] = {"model": "judge", "preset": "plain", "servers": ["http://10.0.0.8"]}
    for more, code in (({"weights": card["made_with"]["asker"]["model"]}, 0), ({}, 2)):
        card["made_with"]["asker"] = {**asker, **more}
        (tmp_path / "scorecard.json").write_text(json.dumps(card))
        assert pack(folder, tmp_path)[0] == code
        if code == 0:
            assert "10.0.0" not in (folder / "packed.json").read_text()
    assert "does not say which weights answered" in " ".join(capsys.readouterr().err.split())


def test_ids_and_instructions_that_look_like_paths_are_packed_as_they_are(folder, of_the_student, tmp_path):
    (card,) = pack(folder, of_the_student)[1]
    assert card["benchmarks"]["mine"]["tally"]["ids"] == '["`1`  a", "`2`  a"]'
    assert read_capsule(folder / "packed.json")["recipe"]["data"]["instruction"] == "/no_think\nAnswer  briefly."
    files = ("--model", folder / "model", "--data", folder / "train.jsonl", "--out", tmp_path / "again")
    assert vcsd("replay", folder / "packed.json", *files) == 0


@pytest.mark.filterwarnings("ignore:The PEFT config's:UserWarning")
def test_a_run_with_adapters_recognises_its_student(folder, tmp_path, capsys):
    lora = ("lora.rank=2", "trainer.learning_rate=1e-2", f"trainer.output_dir={tmp_path / 'run'}")
    shutil.copytree(folder / "model", tmp_path / "model")
    assert vcsd("train", folder / "recipe.yaml", *lora, f"model.path={tmp_path / 'model'}") == 0
    scores = evaluate(folder, tmp_path / "run", "adapted")
    (tmp_path / "model").rename(tmp_path / "moved")
    assert pack(tmp_path, scores)[0] == 2
    assert "error: --base = " in " ".join(capsys.readouterr().err.split())
    code, cards = pack(tmp_path, scores, more=("--base", tmp_path / "moved"))
    assert (code, cards[0]["measured_on"]) == (0, "the student after step 2 in bfloat16")
