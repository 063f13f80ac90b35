"""Statistics of paired runs, checked against scipy and by hand."""

import pytest
from scipy import stats

from vcsd.evaluation.scoring.compare import spread
from vcsd.reproduce.paired_runs import paired, shown, two_sided


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


def test_bases_with_more_runs_weigh_more_in_the_mean_and_in_its_error():
    changes = {("a", 1): 6.0, ("a", 2): 8.0, ("b", 1): 1.0}
    change = paired(dict.fromkeys(changes, 0.0), changes)
    # mean 5; the runs of a are 1 and 3 above it, that of b is 4 below: sqrt(2 / 1 * (4^2 + 4^2)) / 3
    assert change.difference.mean == 5.0
    assert change.error == pytest.approx(8 / 3)
    assert change.p == pytest.approx(2 * stats.t.sf(5 / (8 / 3), 1))


def test_one_base_has_no_error_and_no_run_no_difference():
    change = paired({("a", 1): 50.0, ("a", 2): 50.0}, {("a", 1): 51.0, ("a", 2): 51.5})
    assert (change.p, change.is_clear, str(change)) == (None, False, "+1.25")
    assert paired({("a", 1): 50.0}, {("a", 2): 51.0}) is None
    assert shown(spread([50.0])) == "50.00"


def test_equal_differences_are_sure_and_no_difference_is_none():
    before = {("a", 1): 0.1, ("b", 2): 0.2, ("c", 3): 0.3}
    assert paired(before, {run: value + 0.7 for run, value in before.items()}).p == 0.0
    assert paired(before, before).p == 1.0
