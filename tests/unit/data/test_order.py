"""The order of rows is a function of seed and epoch, and an integer says where a run stands."""

from collections import Counter

import pytest

from vcsd.data import RowError, Skips, Stream, reason
from vcsd.data.order import Order, permutation
from vcsd.errors import ConfigError, DataError
from vcsd.types import Example


class Shelf:
    """Examples named by their row, of which some cannot be read."""

    def __init__(self, num_rows, broken=()):
        self.num_rows, self.broken = num_rows, broken

    def __len__(self):
        return self.num_rows

    def __getitem__(self, row):
        if row in self.broken:
            raise RowError(str(row), "no file.", reason="missing_file", file=f"{row}.png")
        return Example(id=str(row), images=(), prompt=({"role": "user", "content": "?"},))


def test_every_epoch_has_every_row_once_in_another_order():
    order = Order(50, seed=3)
    epochs = [[order.row(epoch * 50 + place) for place in range(50)] for epoch in range(3)]
    assert all(sorted(rows) == list(range(50)) for rows in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != permutation(50, seed=4, epoch=0).tolist()


def test_the_order_is_the_same_on_every_machine_and_in_every_version():
    assert permutation(10, seed=42, epoch=1).tolist() == [6, 5, 0, 7, 1, 2, 9, 8, 4, 3]


def test_all_orders_of_three_rows_are_about_equally_likely():
    counts = Counter(tuple(permutation(3, seed=seed, epoch=0).tolist()) for seed in range(1200))
    assert len(counts) == 6
    assert all(150 < count < 250 for count in counts.values())


def test_a_cursor_gives_the_same_examples_whatever_was_read_before():
    first = Stream(Shelf(10), seed=0)
    cursor, seen = 0, []
    for _ in range(7):
        taken = first.take(cursor, 3)
        seen.append((cursor, taken.ids))
        cursor = taken.cursor
    for start, ids in seen:
        assert Stream(Shelf(10), seed=0).take(start, 3).ids == ids


def test_broken_rows_are_passed_over_counted_and_do_not_shorten_a_step():
    stream = Stream(Shelf(10, broken={2, 5}), seed=0)
    taken = stream.take(0, 8)
    assert sorted(taken.ids) == [str(row) for row in range(10) if row not in (2, 5)]
    assert dict(stream.skips.counts) == {"missing_file": 2}
    assert stream.skips.num_seen == 10


def test_no_example_is_in_one_step_twice_where_epochs_meet():
    stream, cursor, counts = Stream(Shelf(5), seed=1), 0, Counter()
    for _ in range(20):
        taken = stream.take(cursor, 4)
        cursor = taken.cursor
        assert len(set(taken.ids)) == 4
        counts.update(taken.ids)
    assert min(counts.values()) >= 12


def test_a_step_larger_than_the_data_is_refused():
    with pytest.raises(
        ConfigError, match=r"needs 5 different examples, but the data has only 3.*4 rows; 1 missing_file"
    ):
        Stream(Shelf(4, broken={0}), seed=0).take(0, 5)
    with pytest.raises(ConfigError, match=r"^none of the 2 rows can be used \(2 missing_file\). The last row that was"):
        Stream(Shelf(2, broken={0, 1}), seed=0).take(0, 1)


def test_what_cannot_be_prepared_is_skipped_with_its_reason():
    def prepare(example):
        with reason("over_long_prompt"):
            if int(example.id) < 2:
                raise DataError(example.id, "its prompt has 9000 tokens.")
        return len(example.id)

    stream = Stream(Shelf(6), seed=0)
    assert stream.take_prepared(0, 4, prepare).items == (1, 1, 1, 1)
    assert dict(stream.skips.counts) == {"over_long_prompt": 2}


def test_data_without_rows_is_refused():
    with pytest.raises(ConfigError, match="no rows"):
        Stream(Shelf(0), seed=0, skips=Skips())
