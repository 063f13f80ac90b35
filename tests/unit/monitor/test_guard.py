"""The guard keeps quiet on runs that are sound, warns on those that are not, then stops them, and survives a resume."""

import json
import math
import random

import pytest

from vcsd.monitor import SIGNALS, Guard, Signal
from vcsd.monitor.guard import BASELINE_STEPS, PATIENCE, WINDOW

ROLLOUTS = 256


def share(rng, probability):
    """A share as 256 rollouts show it."""
    spread = math.sqrt(probability * (1 - probability) / ROLLOUTS)
    return min(1.0, max(0.0, rng.gauss(probability, spread)))


def steps(*, begin=None, over=60, num_steps=437, lengthening=0.0, seed=0):
    """The metrics of a run; from step `begin` on it falls apart, `over` so many steps."""
    rng = random.Random(seed)
    for step in range(1, num_steps + 1):
        ill = 0.0 if begin is None else min(1.0, max(0.0, (step - begin) / over))
        longer = lengthening * min(1.0, step / 90)
        yield (
            step,
            {
                "repetition": share(rng, 0.01 + 0.5 * ill),
                "language_drift": share(rng, 0.005 + 0.35 * ill),
                "truncated": share(rng, 0.08 + 0.25 * longer + 0.6 * ill),
                "length": 300 * (1 + 0.6 * longer + 1.8 * ill) * rng.gauss(1, 0.05),
                "student_entropy": 0.4 * rng.gauss(1, 0.05),
                "kl_target_original": 0.05 * rng.gauss(1, 0.1),
            },
        )


def run(trajectory):
    """The first warning, and the stop, if they come."""
    guard, warning = Guard(), None
    for step, metrics in trajectory:
        verdict = guard.judge(step, metrics)
        if verdict.action == "warn" and warning is None:
            warning = step
        if verdict.action == "stop":
            return warning, step, verdict
    return warning, None, None


def test_steps_without_a_value_do_not_count_towards_a_stop():
    guard = Guard((Signal("language_drift", "rise", warn=0.05, stop=0.2),))
    shares = [0.0] * BASELINE_STEPS + [1.0, 1.0]  # the second is the first step beyond `stop`
    given = [*({"language_drift": share} for share in shares), *[{}] * PATIENCE]
    alarms = [guard.judge(step, metrics).action for step, metrics in enumerate(given, start=1)]
    assert alarms == ["go_on"] * BASELINE_STEPS + ["warn"] * (2 + PATIENCE)
    later = [guard.judge(len(given) + step, {"language_drift": 1.0}).action for step in range(1, PATIENCE)]
    assert later == ["warn"] * (PATIENCE - 2) + ["stop"]


@pytest.mark.parametrize("seed", range(5))
def test_a_sound_run_of_437_steps_hears_nothing(seed):
    assert run(steps(seed=seed)) == (None, None, None)


def test_answers_that_lengthen_as_in_the_authors_good_run_are_warned_of_but_not_stopped():
    warning, stop, _ = run(steps(lengthening=1.0))
    assert warning is not None
    assert stop is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("begin", [30, 150, 200])
def test_a_collapse_is_warned_of_within_30_steps_and_stopped_within_60(begin, seed):
    warning, stop, verdict = run(steps(begin=begin, seed=seed))
    assert begin < warning <= begin + 30
    assert warning < stop <= begin + 60
    assert verdict.last_good_step == warning - 1
    assert "repetition rose from" in verdict.message()
    assert f"The last good step is {warning - 1}." in verdict.message()


def test_one_bad_step_is_no_reason_to_stop():
    guard = Guard()
    for step, metrics in steps(num_steps=100):
        strange = {"repetition": 1.0, "length": 1024.0, "truncated": 1.0} if step == 50 else {}
        assert guard.judge(step, {**metrics, **strange}).action != "stop"


def test_a_warning_is_new_once_and_again_after_it_has_passed():
    guard, new = Guard(), []
    for step in range(1, 101):
        is_ill = 20 <= step < 30 or 60 <= step < 70
        if guard.judge(step, {"repetition": 0.1 if is_ill else 0.0}).is_new:
            new.append(step)
    assert new == [20 + WINDOW // 2 - 1, 60 + WINDOW // 2 - 1]


def test_nothing_is_judged_before_there_is_something_usual():
    guard = Guard()
    for step in range(1, BASELINE_STEPS):
        assert guard.judge(step, {"repetition": 1.0 if step > 5 else 0.0}).action == "go_on"


def test_stop_comes_after_patience():
    guard = Guard((Signal("repetition", "rise", warn=0.05, stop=0.15),))
    for step in range(1, 11):
        guard.judge(step, {"repetition": 0.0})
    actions = [guard.judge(step, {"repetition": 1.0}).action for step in range(11, 19)]
    # Means of the window: 10%, 20%, ...; the second is the first beyond 15%.
    assert actions == ["warn"] * PATIENCE + ["stop"] * 3


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_missing_number_is_left_out(missing):
    guard = Guard()
    for step in range(1, 60):
        metrics = {"length": 200.0} if missing is None else {"length": 200.0, "repetition": missing}
        assert guard.judge(step, metrics).action == "go_on"


def test_short_answers_may_grow():
    guard = Guard()
    for step in range(1, 60):
        assert guard.judge(step, {"length": 3.0 if step < 20 else 30.0}).action == "go_on"


@pytest.mark.parametrize(
    ("metric", "usual", "later", "expected"),
    [
        ("student_entropy", 1.0, 0.1, "warn"),  # surer than ever: odd, but not a collapse
        ("student_entropy", 1.0, 2.5, "warn"),
        ("student_entropy", 1.0, 9.0, "stop"),
        ("kl_target_original", 0.1, 0.25, "warn"),
        ("kl_target_original", 0.1, 0.7, "stop"),
    ],
)
def test_entropy_and_the_pull_of_the_target_warn_first(metric, usual, later, expected):
    guard = Guard()
    actions = [guard.judge(step, {metric: later if step > 20 else usual}).action for step in range(1, 100)]
    assert [*dict.fromkeys(actions)] == ["go_on", "warn", "stop"][: 2 + (expected == "stop")]


def trajectory(pulls, entropies):
    """A run in the offline world, 12 prompts x 8 answers a step: means over ten steps each, as they were seen."""
    for step in range(10 * len(pulls)):
        yield step, {"kl_target_original": pulls[step // 10], "student_entropy": entropies[step // 10]}


def test_the_collapse_without_support_is_stopped_before_accuracy_falls():
    growth = [1, 1.36, 1.61, 2.56, 3.78, 3.63, 6.38, 5.99, 9.23, 10.2, 17.75, 23.79, 28.25, 36.41, 42.66]
    entropy = [1, 1.06, 1.05, 1.03, 1.07, 1.14, 1.28, 1.25, 1.35, 1.57, 1.79, 2.11, 2.35, 2.65, 3.01]
    warning, stop, verdict = run(trajectory([0.00739 * x for x in growth], [0.329 * x for x in entropy]))
    assert warning < stop < 55  # 70.7% at step 30, 71.7% at step 60
    assert "kl_target_original grew" in verdict.message()


def test_the_sound_run_beside_it_hears_nothing_for_300_steps():
    growth = [1, 1.02, 0.94, 0.94, 0.96, 1.03, 0.95, 0.87, 0.7, 0.7, 0.58, 0.54, 0.54, 0.46, 0.45, 0.35, 0.32, 0.32]
    growth += [0.26, 0.2, 0.22, 0.23, 0.21, 0.22, 0.15, 0.17, 0.14, 0.14, 0.14, 0.12]
    entropy = [1, 0.94, 0.84, 0.73, 0.7, 0.66, 0.53, 0.49, 0.44, 0.44, 0.37, 0.34, 0.3, 0.29, 0.3, 0.24, 0.24, 0.26]
    entropy += [0.22, 0.19, 0.2, 0.18, 0.18, 0.2, 0.15, 0.18, 0.14, 0.17, 0.17, 0.15]
    assert run(trajectory([0.0293 * x for x in growth], [0.3225 * x for x in entropy])) == (None, None, None)


def test_a_usual_value_of_zero_is_no_division_by_zero():
    guard = Guard()
    for step in range(1, 60):
        verdict = guard.judge(step, {"kl_target_original": 0.0, "student_entropy": 0.0 if step > 20 else 1.0})
    assert verdict.action == "warn"


@pytest.mark.parametrize("cut", [5, 25, 160, 185])
def test_a_guard_restored_from_json_says_what_the_first_would_have_said(cut):
    trajectory = list(steps(begin=150))
    first, second = Guard(), Guard()
    for step, metrics in trajectory[:cut]:
        first.judge(step, metrics)
    second.restore(json.loads(json.dumps(first.state())))
    for step, metrics in trajectory[cut:230]:
        assert second.judge(step, metrics) == first.judge(step, metrics)


def test_every_threshold_of_a_signal_that_stops_is_beyond_its_warning():
    assert all(signal.stop is None or signal.stop > signal.warn for signal in SIGNALS)


def test_a_target_that_is_not_shaped_does_not_warn_though_its_rounding_grows():
    guard = Guard()
    actions = {guard.judge(step, {"kl_target_original": 1e-11 * 2**step}).action for step in range(25)}
    assert actions == {"go_on"}
