"""The student is examined while it is trained, training does not notice, and no step is missing or there twice."""

import json
from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from tiny_processor import build_processor
from tiny_step import losses_of, make_trainer
from toy_questions import question
from vcsd.evaluation.asking.model_answerer import ModelAnswerer
from vcsd.evaluation.benchmarks.benchmark import Benchmark
from vcsd.evaluation.benchmarks.world_suites import ALL_BENCHMARKS
from vcsd.evaluation.live import LiveEvaluation, LiveExam
from vcsd.evaluation.live_lines import live_unread_share, told_losses
from vcsd.evaluation.reading.marking import Marking
from vcsd.monitor import Watch
from vcsd.monitor.lines import read_lines
from vcsd.rollout.sampling import Sampling
from vcsd.teacher import fingerprint, named_tensors
from vcsd.types import Prediction

SUITES = {"toy": Benchmark("toy")}
ASKED = [
    question(str(n), text=f"is it {n}?", kind="yes_no", gold=("Yes", "No")[n % 2], groups={"category": "c"})
    for n in range(4)
]
SAVES = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "learning_rate": 3e-3}


class KilledError(Exception):
    """The moment at which a run is killed."""


class Examiner(LiveEvaluation):
    """An evaluation that is killed in the middle, or right after it, at a step."""

    dies_in = dies_after = None
    examined = ()

    def examine(self, step):
        self.examined = (*self.examined, step)
        if step == self.dies_in:
            raise KilledError
        return super().examine(step)

    def on_step_end(self, args, state, control, **given):
        super().on_step_end(args, state, control, **given)
        if state.global_step == self.dies_after:
            raise KilledError


def make(folder, *, every=3, arguments=SAVES, **moments):
    trainer = make_trainer(folder, arguments=dict(arguments))
    exam = LiveExam(ASKED, every, Sampling(max_new_tokens=8, temperature=0), Marking("exact"), SUITES)
    processor = build_processor()

    def student(step):
        return ModelAnswerer(trainer.engine, processor, name=f"step {step}")

    examiner = Examiner(trainer, exam, student)
    for name, step in moments.items():
        setattr(examiner, name, step)
    examiner.attach()
    return trainer, examiner


def curve(folder):
    lines = list(read_lines(folder / "evaluation.jsonl"))
    for line in lines:
        line.pop("seconds")
    return lines


def answers(folder, step):
    return [line["text"] for line in read_lines(folder / "evaluation" / f"step-{step}.jsonl")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    trainer, _ = make(folder)
    trainer.train()
    return trainer, folder


def test_training_is_the_same_with_and_without_evaluation(whole, tmp_path):
    trainer, _ = whole
    alone = make_trainer(tmp_path, arguments=dict(SAVES))
    alone.train()
    assert losses_of(trainer) == losses_of(alone)
    assert fingerprint(named_tensors(trainer.model)) == fingerprint(named_tensors(alone.model))


def test_the_curve_begins_before_the_first_step_and_follows_the_student(whole):
    _, folder = whole
    lines = curve(folder)
    assert [line["step"] for line in lines] == [0, 3, 6]
    assert lines[0]["benchmarks"]["toy"]["num_questions"] == 4
    assert set(lines[0]["benchmarks"]["toy"]) >= {"entry", "interval", "failed", "unresolved", "truncated"}
    assert len({json.dumps(answers(folder, step)) for step in (0, 3, 6)}) == 3


def test_the_numbers_are_logged_with_the_step(whole):
    trainer, folder = whole
    logged = {entry["step"]: entry for entry in trainer.state.log_history if "evaluation/acc" in entry}
    assert sorted(logged) == [3, 6]
    assert logged[6]["evaluation/acc"] == curve(folder)[-1]["acc"] == logged[6]["evaluation/toy"]
    unread = [live_unread_share(line) for line in curve(folder)]
    assert unread == [25.0 * line["benchmarks"]["toy"]["unresolved"] for line in curve(folder)]  # of four questions
    assert [logged[step]["evaluation/unread"] for step in (3, 6)] == unread[1:]
    assert live_unread_share({"step": 0, "acc": 5.0}) is None


def test_the_numbers_are_written_with_the_step(whole, tmp_path):
    trainer, _ = make(tmp_path)
    with Watch(tmp_path, build_processor().tokenizer, max_steps=6) as watch:
        trainer.monitors = [watch]
        trainer.train()
    lines = {line["step"]: line for line in read_lines(tmp_path / "metrics.jsonl")}
    assert [step for step in lines if "evaluation/acc" in lines[step]] == [3, 6]
    assert [lines[step]["evaluation/toy"] for step in (3, 6)] == [line["acc"] for line in curve(whole[1])[1:]]
    assert all("gradient_norm" in line for line in lines.values())


class Knows:
    """Answers yes to the first `num` questions, and no to the others."""

    identity: ClassVar = {"model": "knows"}

    def __init__(self, num):
        self.num = num

    def answer(self, questions, sampling, *, seed):
        for place, each in enumerate(questions):
            yield place, Prediction(each.id, "Yes" if int(each.id) < self.num else "No", "end", 1)


class KnowsEach(Knows):
    """Answers yes to the first `num` questions of each benchmark, and no to the others."""

    def answer(self, questions, sampling, *, seed):
        for place, each in enumerate(questions):
            yield place, Prediction(each.id, "Yes" if int(each.id) < self.num[each.benchmark] else "No", "end", 1)


def knowing(folder, right_at):
    """An evaluation of 40 questions whose student knows so many of them at each step."""
    examiner = make(folder)[1]
    asked = [question(str(n), text=f"is it {n}?", kind="yes_no", gold="Yes") for n in range(40)]
    examiner.exam = replace(examiner.exam, questions=asked)
    examiner.answerer = lambda step: Knows(right_at[step])
    return examiner


def warnings_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_student_that_is_clearly_worse_than_at_first_is_warned_about(tmp_path, caplog):
    examiner = knowing(tmp_path, {0: 30, 3: 29, 6: 10, 9: 40})
    for step in (0, 3, 6, 9):
        examiner.examine(step)
    (warning,) = warnings_in(caplog)
    assert warning.startswith(
        "Step 6: Scores fell since an earlier evaluation: toy from 75.00 at step 0 (the first) to 25.00 (95% -6"
    )
    lines = curve(tmp_path)
    assert ["fell" in line for line in lines] == [False, False, True, False]
    assert (lines[2]["fell"]["toy"]["difference"], lines[2]["fell"]["toy"]["since"]) == (-50.0, 0)
    assert told_losses(lines[2]).startswith("toy -50.00 (95% -6")
    assert told_losses(lines[2]).endswith("since the first evaluation, at step 0")


RISES_AND_FALLS = {0: 21, 3: 38, 6: 24, 9: 7}


def test_a_student_that_is_clearly_worse_than_at_its_best_is_warned_about(tmp_path, caplog):
    examiner = knowing(tmp_path, RISES_AND_FALLS)
    for step in RISES_AND_FALLS:
        examiner.examine(step)
    above_the_first, below_it = warnings_in(caplog)
    assert "Step 6: Scores fell since an earlier evaluation: toy from 95.00 at step 3 (the best) to" in above_the_first
    assert "toy from 52.50 at step 0 (the first) to 17.50" in below_it
    assert "toy from 95.00 at step 3 (the best) to 17.50" in below_it
    lines = curve(tmp_path)
    assert ["fell" in line for line in lines] == [False, False, False, True]
    assert [line.get("fell_since_best", {}).get("toy", {}).get("since") for line in lines] == [None, None, 3, 3]
    assert told_losses(lines[2]).endswith("since its best evaluation, at step 3")
    assert told_losses(lines[3]).count(" since ") == 2


def test_a_loss_since_the_best_evaluation_must_be_larger_than_one_since_the_first(tmp_path):
    """The same loss of 9 of 40 questions: three standard errors are less than four."""
    for step, right in {0: 30, 3: 21}.items():
        knowing(tmp_path / "first", {step: right}).examine(step)
    assert "fell" in curve(tmp_path / "first")[-1]
    for step, right in {0: 25, 3: 30, 6: 21}.items():
        knowing(tmp_path / "best", {step: right}).examine(step)
    assert "fell_since_best" not in curve(tmp_path / "best")[-1]


def test_every_benchmark_has_a_best_evaluation_of_its_own(tmp_path):
    examiner = make(tmp_path)[1]
    asked = [
        question(str(n), text=f"is it {n}?", kind="yes_no", gold="Yes", benchmark=name)
        for name in ("early", "late")
        for n in range(40)
    ]
    right_at = {0: (20, 20), 3: (40, 20), 6: (20, 40), 9: (5, 5)}
    suites = {name: Benchmark(name) for name in ("early", "late")}
    examiner.exam = replace(examiner.exam, questions=asked, suites=suites)
    for step, (early, late) in right_at.items():
        examiner.answerer = lambda step, num={"early": early, "late": late}: KnowsEach(num)
        examiner.examine(step)
    fell = curve(tmp_path)[-1]["fell_since_best"]
    assert {name: loss["since"] for name, loss in fell.items()} == {"Acc": 3, "early": 3, "late": 6}
    assert set(curve(tmp_path)[2]["fell_since_best"]) == {"early"}


def test_a_resumed_run_warns_as_one_that_was_not_stopped(tmp_path, caplog):
    whole = knowing(tmp_path / "whole", RISES_AND_FALLS)
    for step in RISES_AND_FALLS:
        whole.examine(step)
        knowing(tmp_path / "resumed", RISES_AND_FALLS).examine(step)
    assert curve(tmp_path / "resumed") == curve(tmp_path / "whole")
    messages = warnings_in(caplog)
    assert messages[0::2] == messages[1::2]


def test_evaluations_whose_answers_cannot_be_read_are_not_compared_with(tmp_path, caplog):
    for step in (0, 3):
        knowing(tmp_path, RISES_AND_FALLS).examine(step)
    (tmp_path / "evaluation" / "step-3.jsonl").unlink()
    knowing(tmp_path, {9: 7}).examine(9)
    assert told_losses(curve(tmp_path)[-1]).count(" since ") == 1
    (tmp_path / "evaluation" / "step-0.jsonl").write_text('{"benchmark": 1}\n')
    knowing(tmp_path, {9: 7}).examine(9)
    assert "Scores are not compared with the evaluation at step 0" in caplog.text
    assert told_losses(curve(tmp_path)[-1]) == "", "an evaluation never ends a run"


def test_evaluations_with_other_sampling_values_are_not_compared_with(tmp_path, caplog):
    knowing(tmp_path, {0: 30}).examine(0)
    changed = knowing(tmp_path, {3: 29, 6: 10})
    changed.exam = replace(changed.exam, sampling=Sampling(max_new_tokens=8, temperature=1.0))
    for step in (3, 6):
        changed.examine(step)
    unwatched, fell = warnings_in(caplog)
    assert unwatched == (
        "Scores are not compared with 1 of 1 earlier evaluations: evaluation.sampling was different then."
    )
    assert "toy from 72.50 at step 3 (the best) to 25.00" in fell
    assert "step 0" not in fell


def test_evaluations_with_another_file_of_own_questions_are_not_compared_with(tmp_path, caplog):
    """The questions keep their indices, so that their earlier answers are still found."""
    knowing(tmp_path, {0: 40}).examine(0)
    changed = knowing(tmp_path, {3: 30, 6: 10})
    changed.exam = replace(changed.exam, questions=[replace(each, gold="No") for each in changed.exam.questions])
    for step in (3, 6):
        changed.examine(step)
    assert warnings_in(caplog) == [
        "Scores are not compared with 1 of 1 earlier evaluations: evaluation.tsv had other questions then."
    ]
    lines = curve(tmp_path)
    assert [line["acc"] for line in lines] == [100.0, 25.0, 75.0]
    assert lines[0]["tsv"] != lines[1]["tsv"] == lines[2]["tsv"]


def test_evaluations_of_other_questions_are_not_compared_with(tmp_path, caplog):
    """As when evaluation.limit changes, or chooses others in another release."""
    first, changed = knowing(tmp_path, {0: 40}), knowing(tmp_path, {3: 10})
    published = [replace(each, benchmark="MMStar") for each in first.exam.questions]
    first.exam = replace(first.exam, questions=published[:30], suites=ALL_BENCHMARKS)
    changed.exam = replace(changed.exam, questions=published, suites=ALL_BENCHMARKS)
    first.examine(0)
    changed.examine(3)
    assert warnings_in(caplog) == [
        "Scores are not compared with the evaluation at step 0: it answered 30 of the 40 questions."
    ]


def test_the_last_step_is_examined_even_between_two_turns(tmp_path):
    trainer, examiner = make(tmp_path, every=4)
    trainer.train()
    assert examiner.examined == (0, 4, 6)


@pytest.mark.parametrize(
    ("moment", "step"),
    [("dies_in", 0), ("dies_after", 1), ("dies_in", 3), ("dies_after", 3), ("dies_after", 5), ("dies_in", 6)],
)
def test_a_killed_run_has_the_curve_of_one_that_was_not(whole, tmp_path, moment, step):
    trainer, _ = make(tmp_path, **{moment: step})
    with pytest.raises(KilledError):
        trainer.train("auto")
    resumed, _ = make(tmp_path)
    resumed.train("auto")
    assert curve(tmp_path) == curve(whole[1])
    assert answers(tmp_path, 6) == answers(whole[1], 6)


def test_an_evaluation_before_the_checkpoint_is_not_done_again(tmp_path):
    trainer, _ = make(tmp_path, every=2, dies_after=5)
    with pytest.raises(KilledError):
        trainer.train("auto")
    resumed, examiner = make(tmp_path, every=2)
    resumed.train("auto")
    assert examiner.examined == (6,)
    assert [line["step"] for line in curve(tmp_path)] == [0, 2, 4, 6]


def test_the_best_checkpoint_may_be_chosen_by_an_evaluation(tmp_path):
    arguments = {**SAVES, "metric_for_best_model": "evaluation/acc", "greater_is_better": True}
    trainer, _ = make(tmp_path, every=2, arguments=arguments)
    scores = iter([0.0, 10.0, 30.0, 20.0])
    examiner = next(c for c in trainer.callback_handler.callbacks if isinstance(c, Examiner))
    examiner.examine = lambda step: {"evaluation/acc": next(scores)}
    trainer.train()
    assert (trainer.progress.best_step, trainer.progress.best_value) == (4, 30.0)


@pytest.mark.parametrize("is_taken", [True, False])
def test_the_best_checkpoint_counts_an_evaluation_once_also_at_a_step_that_was_not_taken(tmp_path, is_taken):
    arguments = {**SAVES, "metric_for_best_model": "evaluation/acc", "greater_is_better": True, "max_steps": 1}
    trainer, examiner = make(tmp_path, every=1, arguments=arguments)
    examiner.examine = lambda step: {"evaluation/acc": 5.0}
    counted = []
    trainer._note_best = lambda step: counted.extend(trainer.best_values)
    look = trainer.callback_handler.callbacks[0].on_step_end

    def on_step_end(*given, **more):
        trainer.seen = replace(trainer.seen, is_taken=is_taken)
        look(*given, **more)

    examiner.on_step_end = on_step_end
    trainer.train()
    assert counted == [5.0]


def test_answers_of_an_earlier_attempt_at_a_step_are_not_taken_for_those_of_the_student(tmp_path):
    trainer, examiner = make(tmp_path, every=1, arguments={**SAVES, "max_steps": 1})
    trainer.train()
    before = answers(tmp_path, 1)
    with torch.no_grad():
        weight = trainer.model.lm_head.weight
        weight.copy_(weight.roll(7, dims=0))
    examiner.examine(1)
    assert len(answers(tmp_path, 1)) == len(before)
    assert answers(tmp_path, 1) != before
