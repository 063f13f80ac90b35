"""What a run was started with is not looked at again while it runs, and is afterwards."""

import gc
import weakref

import pytest

from vcsd.trainer.garbage import old_objects_set_aside


class Ring:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.myself = self


def test_new_garbage_is_collected_inside_and_old_garbage_afterwards() -> None:
    old = Ring()
    is_old_there = weakref.ref(old)
    with old_objects_set_aside():
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
        with old_objects_set_aside():
            assert gc.get_freeze_count() == before
        assert gc.get_freeze_count() == before
    finally:
        gc.unfreeze()


def test_an_error_inside_sets_nothing_aside_for_good() -> None:
    before = gc.get_freeze_count()
    with pytest.raises(KeyError), old_objects_set_aside():
        raise KeyError
    assert gc.get_freeze_count() <= before
