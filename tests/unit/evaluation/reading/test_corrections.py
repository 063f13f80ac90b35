"""Two answers in one text, and what decides between them."""

# ruff: noqa: RUF001

import pytest

from vcsd.evaluation.reading import read_answer

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
CLAIM = {"A": "True", "B": "False", "C": "Insufficient information"}
POLAR = {"A": "True", "B": "False"}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("The answer is B. The lamp shines on the table and the wall behind it is bright. The answer is C.", COLOURS),
        ("B is correct because the lamp is green, and the table is well lit. The answer is C.", COLOURS),
        ("<answer>B</answer> and that is what I think of the picture here. The answer is C.", COLOURS),
        ("答案是B。灯在桌子上，墙壁很亮，光线从左边照过来。答案是C。", COLOURS),
        ("B\n\nThe lamp is blue, as can be seen on the wall.\n\nThe answer is C.", COLOURS),
        ("The answer is true, since the table is big. Nothing is said about the chair, so the answer is "
         "insufficient information.", CLAIM),
        ("True. The lamp is on and the wall behind it is bright. The answer is false.", POLAR),
    ],
)  # fmt: skip
def test_two_answers_without_a_correction_are_none(text, options):
    assert read_answer(text, "option", options).found is None


@pytest.mark.parametrize(
    ("text", "kind", "asked"),
    [
        ("The answer is 70. The two angles at the base are equal and known. The answer is 45.", "integer", ""),
        ("The angle is 70°. Two sides are equal. Therefore, the angle is 45°.", "float", "What is the angle?"),
        ("\\boxed{4} is what we get from the sum of all cups on the table. The answer is 5.", "integer", ""),
        ("答案是3。左边有一个杯子，右边有两个杯子，桌子下面还有一个。答案是4。", "integer", "有几个杯子?"),
        ("The answer is yes. The cup stands on the table near the window. The answer is no.", "yes_no", ""),
        ("Yes, the cup is red. The lamp shines on the table. So the answer is no.", "yes_no", "Is the cup red?"),
    ],
)  # fmt: skip
def test_two_numbers_or_yes_and_no_are_none(text, kind, asked):
    assert read_answer(text, kind, {}, asked).found is None


@pytest.mark.parametrize(
    "text",
    [
        "The answer is B. Wait, the lamp on the table is off, so the answer is C.",
        "The answer is B. The lamp is on the table and shines. Correction: the answer is C.",
        "The answer is B. That is wrong: the lamp is off and the table is dark. The answer is C.",
        "I initially thought the answer is B. After a look at the lamp and the table, the answer is C.",
        "The answer is B (green). The lamp is off, though. So the correct answer is C (blue).",
        "The answer is B. None of the lamps is on, the closest option is blue. So the answer is C.",
        "Answer: B\n\nExplanation: the lamp is bright, as shown in the picture.\n\nFinal answer: C",
        "The answer is B. Let us look at it with the other method to be sure. \\boxed{C}",
        "答案是B。灯在桌子上，墙壁很亮。更正：答案是C。",
        "答案是B。重新看图，灯没有亮，所以答案是C。",
    ],
)
def test_a_correction_or_a_marked_final_answer_decides(text):
    assert read_answer(text, "option", COLOURS).found == "C"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("First, the sum of the two is 12. Then we subtract 5 from it. The answer is 7.", "7"),
        ("The answer to the first part is 12. Five of them were sold. Therefore, the answer is 7.", "7"),
        ("With the first method, the answer is 5. The cups behind are counted too. So the answer is 7.", "7"),
        ("The answer is 5.5 on average. As a whole number of cups, the answer is 6.", "6"),
        ("Here is how I found the answer:\n1. I counted the cups.\n2. I added the plates.\n\nThe answer is 7.", "7"),
        ("The cost of one is \\boxed{34}. The total is \\boxed{229}.\nThe answer is: 229", "229"),
    ],
)
def test_values_on_the_way_are_not_answers(text, found):
    assert read_answer(text, "integer", {}, "How many are left?").found == found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("e.g. the answer is B", "option"),
        ("such as: the answer is B", "option"),
        ("(e.g., Answer: C)", "option"),
        ("示例：答案是B", "option"),
        ("比如答案是B。", "option"),
        ("For example, the answer is 4", "integer"),
        ("Example: The answer is 7.", "integer"),
        ("e.g. \\boxed{4}", "integer"),
        ("例如，答案为4。", "integer"),
        ("for example, yes", "yes_no"),
    ],
)
def test_a_text_that_is_only_an_example_is_no_answer(text, kind):
    assert read_answer(text, kind, COLOURS if kind == "option" else {}).found is None
