"""An explanation after the answer does not change it: ticks, axes and the parts of a count are not the answer."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer

DAY = "On which day does the river reach its highest level?"
SQUARES = "Count total number of squares in the image."


def number(text, asked=""):
    return read_answer(text, "float", asked=asked).found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The river reaches its highest level on **day 6**. This is where the line (about 900 cm) is at its top.", "6"),
        ("It is highest on **6**. This is evident from the points between 0 and 20 on the x-axis.", "6"),
        ("The river reaches its highest level on day 6. This value is clearly marked on the axis from 0 to 20.", "6"),
        ("The river reaches its highest level at **t = 6**. This is based on the tick at 900.", "6"),
        ("The level is highest on **6**. This answer is grounded in the point at 900.", "6"),
        ("The axis begins at 6. This is where the line reaches 20.", None),
        ("The line rises for 3 days. This is because of the rain, so the highest day is 6.", "6"),
        ("It is on day 6 or 7. This is evident from the chart.", None),
        ("The river rises. This is 4 days later.", "4"),
        ("The day with the highest level is 6, with **900** cm. This is based on the chart.", "6"),
        ("The top of the line is at 6. This is where the river has 900 cm.", None),
    ],
)
def test_numbers_that_only_explain_are_not_the_answer(text, expected):
    assert number(text, DAY) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("There are two squares in the image: one small square inside a larger square.", "2"),
        ("The image contains 2 squares, one inside the other.", "2"),
        ("There are 5 squares: two red squares and three blue squares.", "5"),
        ("There are 5 squares: two red squares and two blue squares.", None),
        ("There are 3 circles: one red and two blue.", None),
        ("There are three squares, but one is hidden.", None),
        (
            "The number of squares is 5.\n\nHere is the breakdown:\n- There are 3 small ones.\n- There are 2 more.",
            "5",
        ),
        ("The number of squares is 5.\n\nHere is the breakdown:\nThere are 3 and 4. So there are 7 squares.", None),
    ],
)
def test_a_count_may_be_followed_by_its_parts(text, expected):
    assert number(text, SQUARES) == expected


def test_the_whole_is_not_the_count_of_a_part():
    assert number("There are 3 cars: two red and one blue.", "How many red cars are there?") is None


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("36.475, 36.475", "What is the average weight?", "36.475"),
        ("104857.5, 104857.5", "What is the average?", "104857.5"),
        ("5, 5", "What is the average?", None),
        ("36.475, 36.476", "What is the average?", None),
        ("36.475, 36.475", "What are the averages of boys and girls?", None),
        ("36.475, 36.475", "", None),
    ],
)
def test_a_long_number_may_be_given_twice(text, asked, expected):
    assert number(text, asked) == expected


def test_a_pair_of_equal_numbers_is_not_one_number():
    assert number("The layout is 3 by 3.", "What is the layout?") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The day of the highest level is 3 on this axis. However, the axis is logarithmic (1, 10, 100).", None),
        ("The day of the highest level is 3. Other days have 4, 5 and 6 cm. Final answer: not applicable.", None),
    ],
)
def test_a_direct_answer_that_is_taken_back_is_none(text, expected):
    assert number(text, "What is the day of the highest level?") == expected
