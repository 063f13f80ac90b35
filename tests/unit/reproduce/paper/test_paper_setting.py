"""The paper's tables with its own models, end to end on tiny folders in their place."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tiny_examples import picture
from tiny_models import build_model
from tiny_processor import write_processor_files
from toy_benchmarks import write_tsvs
from vcsd.cli.app import app
from vcsd.cli.reproduce_command import _print_paper
from vcsd.config import load_recipe
from vcsd.config.shipped import shipped_names
from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.evaluate import Asking
from vcsd.models.shapes import SHAPES
from vcsd.reproduce.paper.paper_scores import PAPER_SCORES
from vcsd.reproduce.paper.paper_setting import EXPERIMENTS, PaperSetting, launch, rows_of, table
from vcsd.rollout.sampling import Sampling
from vcsd.terminal.stopping import Stopped, stoppable

TINY = (
    *("trainer.max_steps=1", "trainer.bf16=false", "trainer.use_cpu=true", "trainer.gradient_checkpointing=false"),
    *(
        "prompts_per_step=2",
        "rollout.num_per_prompt=2",
        "rollout.max_new_tokens=5",
        "trainer.save_steps=1",
        "guard=off",
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    build_model().save_pretrained(folder / "model")
    write_processor_files(folder / "model")
    write_tsvs(folder / "benchmarks")
    picture(64, 64).save(folder / "a.png")
    rows = [{"id": f"q{n}", "image": "a.png", "question": "how many?", "answer": "1"} for n in range(4)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def setting(folder):
    asking = Asking(sampling=Sampling(max_new_tokens=4), allow_unknown_data=True)
    paths = (f"model.path={folder / 'model'}", f"data.path={folder / 'train.jsonl'}")
    return PaperSetting(folder / "out", asking, folder / "benchmarks", (*TINY, *paths))


def test_a_row_is_trained_exported_evaluated_and_printed_next_to_the_papers(folder):
    plan, said = setting(folder), []
    rows = rows_of("main", ["qwen3_vl_2b"])
    assert rows == ["base/qwen3_vl_2b", "opsd_published/qwen3_vl_2b", "paper/qwen3_vl_2b"]
    cards = [plan.score(row, said.append) for row in rows]
    assert sum(line.startswith("training in") for line in said) == 2
    assert (folder / "out/paper/qwen3_vl_2b/student/model.safetensors").is_file()
    assert [plan.score(row, pytest.fail).acc for row in rows] == [card.acc for card in cards], "nothing is repeated"
    printed = list(table(rows, cards))
    assert printed[-1].split() == ["paper", *(f"{x:.2f}" for x in PAPER_SCORES["paper/qwen3_vl_2b"])]
    unread = sum(score.share_unread for score in cards[-1].benchmarks.values()) / 7
    assert printed[0].split()[-2:] == ["Acc", "unread"]
    assert printed[-2].split()[-2:] == [f"{cards[-1].acc:.2f}", f"{unread:.2f}"]


def test_benchmarks_that_are_not_the_published_ones_are_refused_with_the_option_of_this_command(folder, tmp_path):
    plan = replace(setting(folder), out=tmp_path, asking=Asking())
    with pytest.raises(ConfigError, match=r"allow unknown data \(--set evaluation.allow_unknown_data=true\)"):
        plan.score("base/qwen3_vl_2b", lambda line: None)
    curve = replace(plan, overrides=(*plan.overrides, "evaluation.every=1"))
    with pytest.raises(ConfigError, match=r"allow unknown data \(evaluation.allow_unknown_data=true\)"):
        curve.score("curves/vcsd", lambda line: None)


def test_a_launcher_trains_the_row_with_the_same_recipe(folder, monkeypatch, tmp_path):
    plan = replace(setting(folder), out=tmp_path, launcher=f"{sys.executable} -c 'import sys; sys.exit(7)' --nproc 2")
    command = f"--nproc 2 -m vcsd train paper/qwen3_vl_2b {' '.join(plan.overrides)} trainer.output_dir={tmp_path}"
    with pytest.raises(RunError, match="ended with code 7") as caught:
        plan.score("paper/qwen3_vl_2b", lambda line: None)
    assert command in str(caught.value)
    with pytest.raises(ConfigError, match="nowhere/torchrun cannot be started"):
        replace(plan, launcher="nowhere/torchrun").score("paper/qwen3_vl_2b", lambda line: None)


def test_finished_scores_of_other_settings_are_an_error_and_not_an_answer(folder, tmp_path):
    plan = replace(setting(folder), out=tmp_path)
    card = plan.score("base/qwen3_vl_2b", lambda line: None)
    assert replace(plan, data=tmp_path).score("base/qwen3_vl_2b", pytest.fail).acc == card.acc
    other = replace(plan, overrides=(*plan.overrides, "model.max_pixels=4096"))
    with pytest.raises(ConfigError, match=r"was made with model.max_pixels = None, not 4096. Give the same --set"):
        other.score("base/qwen3_vl_2b", pytest.fail)


def test_a_student_of_other_settings_is_not_evaluated(folder, tmp_path, monkeypatch):
    row, given = "paper/qwen3_vl_2b", setting(folder)
    plan = replace(given, out=tmp_path)
    other = replace(plan, overrides=(*plan.overrides, "method.alpha=2"))

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vcsd.reproduce.paper.paper_setting.load_questions", interrupt)
        with pytest.raises(KeyboardInterrupt):
            plan.score(row, lambda line: None)
    record = tmp_path / row / "recipe.json"
    assert json.loads(record.read_text())["method"]["alpha"] == 1.0, "recorded with the student"
    with pytest.raises(ConfigError, match=r"was made with method.alpha = 1.0, not 2\."):
        other.score(row, pytest.fail)
    record.unlink()  # as earlier versions left it: the run still knows
    with pytest.raises(ConfigError, match=r"was made with method.alpha = 1.0, not 2\."):
        other.score(row, pytest.fail)
    said = []
    plan.score(row, said.append)
    assert [line.split(":")[0] for line in said] == [row], "evaluated, not trained"


def test_a_finished_run_with_more_steps_than_asked_for_is_not_exported(folder, tmp_path, monkeypatch):
    row, given = "paper/qwen3_vl_2b", setting(folder)
    plan = replace(given, out=tmp_path, overrides=("trainer.max_steps=2", *given.overrides[1:]))
    with monkeypatch.context() as patch:
        patch.setattr("vcsd.reproduce.paper.paper_setting.export", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            plan.score(row, lambda line: None)
    with pytest.raises(ConfigError, match=r"was made with trainer.max_steps = 2, not 1"):
        replace(given, out=tmp_path).score(row, lambda line: None)


def test_keys_that_were_not_recorded_are_compared_only_if_they_were_asked_for(folder, tmp_path):
    plan, row = replace(setting(folder), out=tmp_path), "base/qwen3_vl_2b"
    tree = json.loads(plan.recipe(row).to_json())
    del tree["model"]["chat_template_kwargs"], tree["guard"], tree["rollout"]
    finished = tmp_path / row / "eval" / "scorecard.json"
    finished.parent.mkdir(parents=True)
    record = tmp_path / row / "recipe.json"

    def problem(*overrides):
        with pytest.raises(ConfigError) as caught:
            replace(plan, overrides=(*plan.overrides, *overrides)).score(row, pytest.fail)
        return str(caught.value)

    finished.write_text("{}")
    record.write_text(json.dumps(tree))
    plan = replace(plan, overrides=tuple(each for each in plan.overrides if not each.startswith(("guard", "rollout"))))
    assert "not a scorecard" in problem(), "later keys alone are not refused"
    assert "rollout.top_k = None, not 5" in problem("rollout.top_k=5")
    assert "model.chat_template_kwargs = None, not {'a': True}" in problem("model.chat_template_kwargs.a=true")
    assert "trainer.weight_decay = 0.01, not 0.5" in problem("trainer.weight_decay=0.5")
    assert "trainer.adam_beta2 = None, not 0.9" in problem("trainer.adam_beta2=0.9")
    record.write_text(json.dumps({**tree, "trainer": {**tree["trainer"], "adam_beta2": 0.9}}))
    assert "trainer.adam_beta2 = 0.9, not None" in problem()
    record.write_text('{"model"')
    assert "recipe.json is damaged" in problem()


CHILD = """
import os, signal
from pathlib import Path
from vcsd.trainer import DistillationTrainer
from vcsd.evaluation.evaluate import Asking
from vcsd.reproduce.paper.paper_setting import PaperSetting
from vcsd.rollout.sampling import Sampling
step = DistillationTrainer.training_step
def kill_in_the_fourth_step(trainer, *given):
    if trainer.state.global_step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(trainer, *given)
DistillationTrainer.training_step = kill_in_the_fourth_step
asking = Asking(sampling=Sampling(max_new_tokens=4), allow_unknown_data=True)
PaperSetting(Path({out!r}), asking, Path({data!r}), {overrides!r}).score({row!r}, print)
"""


@pytest.mark.slow
def test_a_row_whose_process_was_killed_resumes_its_training_and_has_the_same_scores(folder, tmp_path):
    row, given = "opsd_published/qwen3_vl_2b", setting(folder)
    plan = replace(given, out=tmp_path / "killed", overrides=("trainer.max_steps=5", *given.overrides[1:]))
    code = CHILD.format(out=str(plan.out), data=str(plan.data), overrides=plan.overrides, row=row)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert (plan.out / row / "run/checkpoint-3").is_dir()
    whole = replace(plan, out=tmp_path / "whole")
    assert plan.score(row, lambda line: None).acc == whole.score(row, lambda line: None).acc
    assert losses_of(plan.out / row) == losses_of(whole.out / row)
    assert len(losses_of(plan.out / row)) == 5


def metrics_of(row):
    return (row / "run" / "metrics.jsonl").read_text().splitlines()


def losses_of(row):
    return [json.loads(line)["loss"] for line in metrics_of(row)]


def loss_of(row):
    (loss,) = losses_of(row)
    return loss


@pytest.mark.slow
@pytest.mark.parametrize("experiment", sorted(set(EXPERIMENTS) - {"main", "dynamics"}))
def test_every_ablation_is_trained_with_its_own_loss_exported_evaluated_and_printed(folder, experiment):
    plan, rows = setting(folder), rows_of(experiment, [])
    cards = [plan.score(row, lambda line: None) for row in rows]
    assert all(len(card.benchmarks) == 7 for card in cards)
    assert all((plan.out / row / "student" / "model.safetensors").is_file() for row in rows)
    losses = [loss_of(plan.out / row) for row in rows]
    is_longer_only = [row == "ablations/support" for row in rows]
    assert [loss == losses[0] for loss in losses[1:]] == is_longer_only[1:], "the first step of the paper's recipe"
    assert len(set(losses)) == len(rows) - sum(is_longer_only)
    printed = [line.split()[0] for line in table(rows, cards)][1:]
    assert [name for name in printed if name != "paper"] == rows


@pytest.mark.slow
def test_a_row_is_trained_on_two_ranks_exported_and_evaluated(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    launcher = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"
    fsdp = replace(setting(folder), overrides=(*setting(folder).overrides, "trainer.fsdp=true"))
    plan = replace(fsdp, out=tmp_path, launcher=launcher)
    card = plan.score("paper/qwen3_vl_2b", lambda line: None)
    assert card.acc == setting(folder).score("paper/qwen3_vl_2b", lambda line: None).acc
    row = tmp_path / "paper/qwen3_vl_2b"
    assert len(list((row / "run/checkpoint-1/student").glob("shard-*"))) == 2
    assert (row / "student/model.safetensors").is_file()


@pytest.mark.parametrize("row", ["curves/vcsd", pytest.param("curves/opsd_published", marks=pytest.mark.slow)])
def test_the_training_curve_is_evaluated_every_few_steps_and_printed(folder, tmp_path, row, capsys):
    curve = ("evaluation.every=1", "evaluation.limit=1", "evaluation.allow_unknown_data=true")
    given = setting(folder)
    plan = replace(given, out=tmp_path, overrides=(*given.overrides, *curve))
    assert rows_of("dynamics", []) == ["curves/opsd_published", "curves/vcsd"]
    assert load_recipe(row).evaluation.every == 10
    card = plan.score(row, lambda line: None)
    lines = [json.loads(line) for line in (tmp_path / row / "run/evaluation.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1]
    assert {"BLINK", "MMStar"} <= set(lines[0]["benchmarks"])
    _print_paper(plan, [row], [card])
    printed = capsys.readouterr().out.splitlines()
    assert printed[-5] == f"The paper has figures but no table of scores for {row}."
    num_questions = sum(score["num_questions"] for score in lines[-1]["benchmarks"].values())
    assert printed[-4] == f"{row} during training, {num_questions} questions each time:"
    for words, line in zip((text.split() for text in printed[-3:-1]), lines, strict=True):
        assert words[:2] == ["step", str(line["step"])]
        assert words[-2] == f"{line['acc']:.2f}"
    assert printed[-1] == str(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_every_experiment_names_recipes_that_ship():
    for experiment in EXPERIMENTS:
        trained = [row for row in rows_of(experiment, []) if not row.startswith("base/")]
        assert set(trained) <= set(shipped_names())
    with pytest.raises(ConfigError, match="has no table with --setting paper"):
        rows_of("pmi", [])
    with pytest.raises(ConfigError, match="Did you mean 'qwen3_vl_2b'"):
        rows_of("main", ["qwen3_vl_2bb"])
    with pytest.raises(ConfigError, match="--models is for main: the paper's alpha trains Qwen3-VL-2B alone"):
        rows_of("alpha", ["qwen3_vl_4b"])


def test_the_papers_accuracy_is_the_mean_of_its_seven_columns():
    assert len(PAPER_SCORES) == 3 * len(SHAPES) + 6
    for row, (*scores, acc) in PAPER_SCORES.items():
        assert len(scores) == 7
        assert acc == pytest.approx(sum(scores) / 7, abs=0.011), row


def test_a_dry_run_says_what_each_row_costs(tmp_path):
    command = [
        "reproduce",
        "main",
        "--setting",
        "paper",
        "--models",
        "qwen3_vl_2b",
        "--out",
        str(tmp_path),
        "--dry-run",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    base, opsd, vcsd, total, note = result.output.splitlines()
    assert base.startswith("base/qwen3_vl_2b: evaluation only, ")
    assert base.endswith(" h for 7,143 questions on A100 80 GB (projected)")
    assert " h of training on A100 80 GB, then " in opsd
    assert vcsd.startswith("paper/qwen3_vl_2b: ")
    hours = [float(number) for line in (base, opsd, vcsd) for number in re.findall(r"([\d.]+) h ", line)]
    assert float(re.match(r"total: ([\d.]+) h, ", total)[1]) == pytest.approx(sum(hours), abs=0.3)
    assert "answers of 1,024 tokens and prompts of 1,064 tokens" in note
    assert load_recipe("paper/qwen3_vl_2b").trainer["max_steps"] == 90


@pytest.mark.parametrize(
    "options", [["--quick"], ["--jobs", "2"], ["--seeds", "1"], ["--bases", "b"], ["--questions", "0"], ["--cross"]]
)
def test_options_of_the_world_are_no_options_of_the_paper(tmp_path, options):
    command = ["reproduce", "main", "--setting", "paper", "--out", str(tmp_path / "out"), *options]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"{options[0]} belongs to the offline world.")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--setting", "paper", "--models", ","], "--models ',' is not a list of distinct models."),
        (["--setting", "paper", "--models", "qwen3_vl_2b,qwen3_vl_2b"], "is not a list of distinct models."),
        (["--setting", "paper", "--launcher", "torchrun 'x"], "cannot be read: No closing quotation."),
        (["--setting", "paper", "--launcher", "  "], "--launcher is blank."),
        (["--setting", "paper", "--launcher", "no-such-command -n 2"], "no-such-command cannot be started"),
        (["--setting", "paper", "--set", "trainer.max_steps=0"], "trainer.max_steps = 0 must be at least 1"),
        (["--seeds", "1..99999999999"], "the number of seeds 99999999999 must be at most 1,000."),
        (["--seeds", f"1..{10**30}"], "is not a list of distinct seeds."),
        (["--questions", "0"], "--questions 0 must be at least 1."),
        (["--questions", "9999999999"], "--questions 9999999999 must be at most 100,000."),
        (["--jobs", "99999999"], "--jobs 99999999 must be at most 1,024."),
    ],
)
def test_a_number_or_a_list_that_is_a_slip_is_refused_before_anything_is_written(tmp_path, options, problem):
    result = CliRunner().invoke(app, ["reproduce", "main", "--out", str(tmp_path / "out"), *options])
    assert isinstance(result.exception, ConfigError)
    assert problem in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_dry_run_of_every_experiment_names_a_machine_for_each_row(tmp_path, experiment):
    result = CliRunner().invoke(
        app, ["reproduce", experiment, "--setting", "paper", "--out", str(tmp_path), "--dry-run"]
    )
    *lines, total, _ = result.output.splitlines()
    assert [line.split(":")[0] for line in lines] == rows_of(experiment, [])
    assert all("evaluation only" in line or "GiB of disk (projected)" in line for line in lines)
    assert all("7,143 questions" in line for line in lines)
    assert total.startswith("total: ")


def test_a_dry_run_of_an_absurd_length_says_so_in_words(tmp_path):
    plan = PaperSetting(tmp_path, Asking(), overrides=("trainer.max_steps=1000000000",))
    assert "more than 100 years of training on A100 80 GB" in plan.cost("paper/qwen3_vl_2b").line


def test_the_cost_of_questions_grows_with_their_number_their_answers_and_the_exams_on_the_way(tmp_path):
    plan = PaperSetting(tmp_path, Asking())
    row, curve = plan.cost("paper/qwen3_vl_2b"), plan.cost("curves/vcsd")
    assert (curve.num_exams, curve.num_exam_questions) == (10, 7143)
    assert curve.exam_seconds == pytest.approx(10 * row.answer_seconds)
    assert curve.seconds == pytest.approx(row.seconds + curve.exam_seconds)
    few = replace(plan, overrides=("evaluation.limit=10", "trainer.max_steps=11")).cost("curves/vcsd")
    assert (few.num_exams, few.num_exam_questions) == (3, 70)
    short = replace(plan, asking=Asking(sampling=Sampling(max_new_tokens=64))).cost("paper/qwen3_vl_2b")
    assert short.answer_seconds < row.answer_seconds
    small = replace(plan, overrides=("model.max_pixels=1048576",)).cost("paper/qwen3_vl_2b")
    assert small.answer_seconds < row.answer_seconds / 2


def test_ranks_of_a_curve_wait_longer_than_an_evaluation_takes(tmp_path):
    for row in rows_of("dynamics", []):
        cost = PaperSetting(tmp_path, Asking()).cost(row)
        assert load_recipe(row).trainer["ddp_timeout"] > 2 * cost.exam_seconds / cost.num_exams


def test_options_of_the_paper_need_its_setting():
    for options in (["--dry-run"], ["--setting", "moon"]):
        result = CliRunner().invoke(app, ["reproduce", "main", *options])
        assert isinstance(result.exception, ConfigError)


STARTED = """
import os, pathlib, signal, time
def save(number, frame):
    time.sleep(1)
    pathlib.Path({path!r}).write_text(signal.Signals(number).name)
    raise SystemExit(128 + number)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, save)
while not pathlib.Path({path!r}).with_name("waiting").exists():
    time.sleep(0.01)
os.kill(os.getppid(), {number})
if {number} == signal.SIGINT:
    os.kill(os.getpid(), {number})  # a terminal sends it to both
while True:
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("_default_interrupt")
def test_a_signal_lets_the_launched_run_save_before_the_command_ends(tmp_path, monkeypatch, number):
    path, wait = tmp_path / "saved", subprocess.Popen.wait

    def waiting(process):
        (tmp_path / "waiting").touch()
        return wait(process)

    monkeypatch.setattr(subprocess.Popen, "wait", waiting)
    with stoppable(), pytest.raises(Stopped):
        launch([sys.executable, "-c", STARTED.format(path=str(path), number=int(number))])
    assert path.read_text() == number.name
