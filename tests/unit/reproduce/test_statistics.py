"""What a few seeds can say, against scipy and by hand."""

import math

import pytest
from scipy import stats

from vcsd.evaluation.compare import spread
from vcsd.reproduce.statistics import paired, shown, standard_error, two_sided


@pytest.mark.parametrize("freedom", range(1, 15))
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.776, 9.5])
def test_the_tail_of_students_t_is_scipys(t, freedom):
    assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), abs=1e-12)
    assert two_sided(-t, freedom) == two_sided(t, freedom)


def test_a_difference_is_taken_run_by_run():
    before = {("a", 1): 40.0, ("b", 2): 60.0, ("a", 3): 50.0}
    after = {("a", 3): 53.0, ("b", 2): 61.0, ("a", 1): 42.0, ("c", 9): 0.0}
    change = paired(before, after)
    assert change.difference.mean == 2.0, "2, 1 and 3 points"
    assert standard_error(change.difference) == pytest.approx(1 / math.sqrt(3))
    assert change.p == pytest.approx(stats.ttest_rel([42, 61, 53], [40, 60, 50]).pvalue)
    assert paired(after, before).difference.mean == -2.0
    assert not change.is_clear
    assert str(change) == "+2.00 ± 0.58 (p = 0.074)"


def test_one_run_has_no_error_and_no_run_no_difference():
    change = paired({1: 50.0}, {1: 51.0})
    assert (change.p, change.is_clear, str(change)) == (None, False, "+1.00")
    assert paired({1: 50.0}, {2: 51.0}) is None
    assert shown(spread([50.0])) == "50.00"


def test_equal_differences_are_sure_and_no_difference_is_none():
    assert paired({1: 1.0, 2: 2.0}, {1: 2.0, 2: 3.0}).p == 0.0
    assert paired({1: 1.0, 2: 2.0}, {1: 1.0, 2: 2.0}).p == 1.0
