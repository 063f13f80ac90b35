"""Turns of phrase that readers of answers fall for, each found in what real models wrote."""

import time

import pytest

from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.evaluation.reading.texts.statements import statements

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
IMAGES = {"A": "the second image", "B": "the third image"}
ANGLES = {"A": "13°", "B": "32°", "C": "45°"}
NUMBERS = {"A": "2.5", "B": "3", "C": "3.5"}
ROOTS = {"A": "2", "B": "2√{3}", "C": "\\frac { 3√{5} } { 2 }"}
FRACTIONS = {"A": "$\\frac{2}{7}$", "B": "$\\frac{11}{14}$"}
LETTERS = {"A": "picture A", "B": "picture B", "C": "picture C"}


def option(text, options=COLOURS):
    return read_answer(text, "option", options).found


def number(text):
    return read_answer(text, "integer").found


@pytest.mark.parametrize(
    ("options", "text", "found"),
    [
        (COLOURS, "<s> A) red</s>", "A"),
        (COLOURS, "The correct answer is:\n(A) red\n(B) green\n(C) blue", None),
        (COLOURS, "Please select the correct answer from the choices:\n(A) red\n(B) green", None),
        (COLOURS, "The answer should be either (A) red, (B) green, or (C) blue.", None),
        (COLOURS, "It is not possible to determine the correct choice (A, B, C or D).", None),
        (COLOURS, "So I would eliminate option (C).", None),
        (COLOURS, "The answer choice A is a rose, which is wrong. The answer choice B is a leaf. So it is green.", "B"),
        (COLOURS, "Which is best? I would choose:\n\n(C) blue\n\nThis one is like the sky.", "C"),
        (COLOURS, "The correct answer that fits the pattern of the lamps in the first row is (D).", "D"),
        (COLOURS, "Therefore, the roof is **(B) green**.\n\nI hope this helps! Let me know if you need more.", "B"),
        (COLOURS, "To answer this, look at the door: is it red? It is blue.", "C"),
        (IMAGES, "Therefore, the third image (B) shares the style, while the second image (A) is abstract.", "B"),
        (IMAGES, "The second image (A), on the other hand, is a sketch.", None),
        (IMAGES, "The answer is (A) none of the above.", None),
        (ANGLES, "So the angle is \\boxed{13^\\circ}.", "A"),
        (ANGLES, "Thus \\angle ACB = \\boxed{32}.", "B"),
        (ANGLES, "\\boxed{46}", None),
        (NUMBERS, "B. 3.5", None),
        (NUMBERS, "The answer is (C) 3.5.", "C"),
        (LETTERS, "Therefore, picture B is the correct choice that continues the row.", "B"),
        ({"A": "9", "B": "18", "C": "18"}, "The answer is 18.", "B"),
        ({"A": "2", "B": "2√3"}, "Therefore, the length is 2√3.", "B"),
        ({"A": "increase", "B": "decrease"}, "A: Decrease", None),
        (COLOURS, "The answer is A? Let me look once more at the", None),
        (ROOTS, "Hence $DE = \\boxed{\\dfrac{3\\sqrt{5}}{2}}$.", "C"),
        (ROOTS, "The answer is 2\\sqrt{3}.", "B"),
        (ROOTS, "\\boxed{3\\sqrt{2}}", None),
        ({"A": "2", "B": "4", "C": "6"}, "\\boxed{3\\sqrt{2}}", None),
        ({"A": "5π", "B": "10π"}, "The arc is \\boxed{5\\pi}", "A"),
        (COLOURS, "计算可得,选项为C", "C"),
        (COLOURS, "答案是7,对应选项是（D）。", "D"),  # noqa: RUF001
        (COLOURS, "选项:(B) green", "B"),
        (COLOURS, "A选项是红色,看起来不对。", None),
        ({"A": "True", "B": "False"}, "The statement is false, as the lamp is off.", "B"),
        ({"A": "False", "B": "True"}, "True.", "B"),
        ({"A": "False", "B": "True"}, "Yes, they believed it.", "B"),
        ({"A": "True", "B": "False"}, "The statement is not true.", "B"),
        ({"A": "对", "B": "错"}, "这个说法是错误的。", "B"),
        (COLOURS, "✓ B", "B"),
        (COLOURS, "(A) red\n(B) green ✅\n(C) blue", "B"),
        (FRACTIONS, "$\\frac{11}{14}$", "B"),
        (FRACTIONS, "The correct answer is (B) \\frac { 11 } { 14 }.", "B"),
        ({"A": "$1 \\mathrm{~km}$", "B": "$2 \\mathrm{~km}$"}, "$2 \\mathrm{~km}$", "B"),
        ({"A": "10", "B": "40"}, "The perimeter is 10 + 10 + 10 + 10 = 40.", "B"),
        ({"A": "Grasshopper", "B": "Snake"}, "Then grasshoppers would be most affected.", "A"),
        ({"A": "PDE-Refiner", "B": "Diffusion"}, "The PDE Refiner has the lowest loss.", "A"),
        (COLOURS, "Green (B)\n\nThe lamp is on.", "B"),
        ({"A": "zero", "B": "undefined"}, "The slope at this point is undefined.", "B"),
        ({"A": "cup", "B": "bowl"}, "a. The cup is on the table.\nb. There are two bowls.", None),
    ],
)
def test_an_option_is_read_as_it_is_meant(options, text, found):
    assert option(text, options) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The share was lower than 2% in **1970**.\n\nThis is the only year below 2%.", "1970"),
        ("The limit is **-3**.", "-3"),
        ("Therefore, the perimeter is 3 + 3 + 3 = **9 yards**.\n\nIs there anything else I can help you with?", "9"),
        ("Adding 4 to each digit of 17, which gives us 51.", "51"),
        ("At r=2 the field is 14 N/C. Thus the charge is 14. It points inwards.", "14"),
        ("There are four cars and one bus.", None),
        ("Scores:\nAda: 6\nBen: 10\nCy: 3", None),
        ("Name | Score\nAda | 6\nBen | 20%", None),
        ("The A-847 model is used.", None),
        ("No one can see the one on the left. There are 2 left.", "2"),
        ("**7** apples and 3 pears, so 10.", None),
        ("The length is 2√3.", None),
        ("\\boxed{3\\sqrt{2}}", None),
        ("The answer is 5? Let me count again, more", None),
        ("\\boxed{36 \\text{ units}}", "36"),
    ],
)
def test_a_number_is_read_as_it_is_meant(text, found):
    assert number(text) == found


def test_a_thought_is_no_answer():
    assert option("<think>The answer is A.</think>The answer is B.") == "B"
    assert option("<think>The answer is A.") is None
    assert read_answer("<think>7</think>", "integer").found is None


def test_a_program_is_no_answer():
    assert number("def solution(x):\n    y = 5\n    return y\n\nx = 3\nprint(solution(x))") is None
    assert number("```python\nprint(2 + 3)\n```\nThe answer is 5.") == "5"


def test_statements_come_last_first_and_boxes_may_nest():
    found = statements(r"The answer is A. So \boxed{\text{B \frac{1}{2}}} and \boxed{unclosed")
    assert [(statement.form, statement.payload) for statement in found] == [
        ("boxed", r"\text{B \frac{1}{2}}"),
        ("declared", "A. So \\boxed{\\text{B \\frac{1}{2}}} and \\boxed{unclosed"),
    ]


def test_free_text_is_its_statement_or_itself():
    assert read_answer("I think it rains.\nAnswer: rain", "text").found == "rain"
    assert read_answer(" snow ", "text").found == "snow"
    assert read_answer("", "text").found is None


def test_a_long_loop_is_read_quickly_and_not_believed():
    assert option("the answer is the answer is " * 3000) is None
    assert option("(" * 20000) is None
    assert number("1 + " * 10000) is None
    assert read_answer("yes no " * 5000, "yes_no").found is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "x" + " \n" * 9000 + "B"),
        ("option", "- \n" * 6000),
        ("integer", "A. " * 9000),
        ("integer", "<answer>" * 8000),
    ],
)
def test_a_loop_of_marks_or_empty_lines_is_read_quickly(kind, text):
    start = time.process_time()
    assert read_answer(text, kind, COLOURS if kind == "option" else {}).found is None
    assert time.process_time() - start < 1.2, "it took up to a quarter of a minute, and four times as long if doubled"


def test_a_long_answer_is_read_in_a_time_that_grows_with_its_length():
    start = time.monotonic()
    assert read_answer("one hundred " * 40_000, "integer") == read_answer("one hundred " * 40, "integer")
    assert time.monotonic() - start < 40, "it took minutes when every number looked at the whole text before it"
