"""What a run was started with is not looked at again while it runs, and is afterwards."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from vcsd.trainer.garbage import old_objects_frozen


@pytest.fixture(autouse=True)
def _nothing_is_frozen() -> Iterator[None]:
    gc.unfreeze()  # what conftest.py has frozen
    yield
    gc.freeze()


class Ring:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.myself = self


def test_new_garbage_is_collected_inside_and_old_garbage_afterwards() -> None:
    old = Ring()
    is_old_there = weakref.ref(old)
    with old_objects_frozen():
        assert gc.get_freeze_count() > 1000
        new = Ring()
        is_new_there = weakref.ref(new)
        del new, old
        gc.collect()
        assert is_new_there() is None
        assert is_old_there() is not None
    gc.collect()
    assert is_old_there() is None


def test_what_others_have_set_aside_stays_theirs() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        fresh: list[list[int]] = [[] for _ in range(10_000)]  # would be counted if they were frozen too
        with old_objects_frozen():
            assert before - 1000 < gc.get_freeze_count() <= before  # frozen objects may still die
        assert before - 1000 < gc.get_freeze_count() <= before
        assert len(fresh) == 10_000
    finally:
        gc.unfreeze()


def test_an_error_inside_sets_nothing_aside_for_good() -> None:
    before = gc.get_freeze_count()
    with pytest.raises(KeyError), old_objects_frozen():
        raise KeyError
    assert gc.get_freeze_count() <= before
