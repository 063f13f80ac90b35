"""Statistics of paired runs, checked against scipy and by hand."""

import pytest
from scipy import stats

from vcsd.evaluation.scoring.compare import spread
from vcsd.evaluation.scoring.student_t import two_sided
from vcsd.reproduce.paired_runs import Paired, equivalence, equivalence_interval, holm, paired, shown


@pytest.mark.parametrize("freedom", range(1, 15))
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.776, 9.5])
def test_the_tail_of_students_t_is_scipys(t, freedom):
    assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), abs=1e-12)
    assert two_sided(-t, freedom) == two_sided(t, freedom)


def test_a_difference_is_taken_run_by_run():
    before = {("a", 1): 40.0, ("b", 2): 60.0, ("c", 3): 50.0}
    after = {("c", 3): 53.0, ("b", 2): 61.0, ("a", 1): 42.0, ("d", 9): 0.0}
    change = paired(before, after)
    assert change.difference.mean == 2.0, "2, 1 and 3 points"
    assert change.p == pytest.approx(stats.ttest_rel([42, 61, 53], [40, 60, 50]).pvalue)
    assert paired(after, before).difference.mean == -2.0
    assert not change.is_clear
    assert str(change) == "+2.00 ± 0.58 (p = 0.074)"


def test_runs_of_one_base_count_together():
    changes = {("a", 1): 10.0, ("a", 2): 10.0, ("b", 1): 4.0, ("b", 2): 4.0, ("c", 1): 7.0, ("c", 2): 7.0}
    change = paired(dict.fromkeys(changes, 0.0), changes)
    alone = stats.ttest_1samp([10, 4, 7], 0)
    assert (change.difference.mean, change.num_bases) == (7.0, 3)
    assert change.p == pytest.approx(alone.pvalue), "a second seed of each base that says the same says nothing new"
    assert change.error == pytest.approx(alone.statistic**-1 * 7.0)


def test_bases_weigh_equally_however_many_runs_they_have():
    changes = {("a", 1): 6.0, ("a", 2): 8.0, ("b", 1): 1.0}
    change = paired(dict.fromkeys(changes, 0.0), changes)
    alone = stats.ttest_1samp([7, 1], 0)
    assert (change.mean, change.num_bases) == (4.0, 2)
    assert change.error == pytest.approx(4 / alone.statistic)
    assert change.p == pytest.approx(alone.pvalue)


def test_two_looks_double_p_and_widen_the_test_for_equality():
    runs = {(name, 1): value for name, value in zip("abcde", (1.0, 0.5, 0.0, 0.8, 0.7), strict=True)}
    once, twice = (paired(dict.fromkeys(runs, 0.0), runs, looks=looks) for looks in (1, 2))
    assert twice.p == pytest.approx(2 * once.p)
    assert equivalence_interval(once) == pytest.approx(stats.t.interval(0.90, 4, once.mean, once.error))
    assert equivalence_interval(twice) == pytest.approx(stats.t.interval(0.95, 4, once.mean, once.error))
    assert (equivalence(once), equivalence(twice)) == ("alike", "undecided")


def test_the_detectable_difference_is_shown_in_80_percent_of_cases():
    change = paired(dict.fromkeys([(name, 1) for name in "abcde"], 0.0), {(n, 1): float(n == "a") for n in "abcde"})
    power = stats.nct.sf(stats.t.ppf(0.975, 4), 4, change.detectable / change.error)
    assert power == pytest.approx(0.8, abs=0.02)
    assert change.detectable == pytest.approx(change.error * (stats.t.ppf(0.975, 4) + stats.t.ppf(0.8, 4)))
    assert change.alike_within == pytest.approx(change.error * (stats.t.ppf(0.95, 4) + stats.t.ppf(0.9, 4)))


def test_holm_corrects_for_the_number_of_tests():
    changes = [Paired(spread([1.0]), 5, 1.0, p) for p in (0.001, 0.04, 0.03, 0.5, None)]
    assert [change.p for change in holm(changes)] == pytest.approx([0.004, 0.09, 0.09, 0.5, None])


def test_one_base_has_no_error_and_no_run_no_difference():
    change = paired({("a", 1): 50.0, ("a", 2): 50.0}, {("a", 1): 51.0, ("a", 2): 51.5})
    assert (change.p, change.is_clear, str(change)) == (None, False, "+1.25")
    assert paired({("a", 1): 50.0}, {("a", 2): 51.0}) is None
    assert shown(spread([50.0])) == "50.00"


def test_equal_differences_are_sure_and_no_difference_is_none():
    before = {("a", 1): 0.1, ("b", 2): 0.2, ("c", 3): 0.3}
    assert paired(before, {run: value + 0.7 for run, value in before.items()}).p == 0.0
    assert paired(before, before).p == 1.0
