"""Questions that a model invents: only the answer to the one asked counts."""

# ruff: noqa: RUF001

import pytest

from vcsd.evaluation.reading import read_answer

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
HAN = {"A": "红色", "B": "绿色", "C": "蓝色"}


LAMP, CUPS, RED = "What colour is the lamp?", "How many cups are there?", "Is the cup red?"


@pytest.mark.parametrize(
    ("text", "kind", "asked", "found"),
    [
        ("1. What colour is the lamp?\nIt is green.\n2. What colour is the table?\nIt is blue.", "option", LAMP, "B"),
        ("What colour is the lamp?\nThe answer is B.\nWhat colour is the wall?\nThe answer is C.", "option", LAMP, "B"),
        ("1. What colour is the lamp?\n2. What colour is the table?\nIt is blue.", "option", LAMP, None),
        ("How many cups are there? 4 cups. How many plates are there? 6 plates.", "integer", CUPS, "4"),
        ("- Is the cup red?\nYes.\n- Is the plate red?\nNo.\n- Is the fork red?\nNo.", "yes_no", RED, "Yes"),
        ("How many cups are there? The answer is 4.", "integer", CUPS, "4"),
    ],
)
def test_only_the_reply_to_the_repeated_question_counts(text, kind, asked, found):
    assert read_answer(text, kind, COLOURS if kind == "option" else {}, asked).found == found


def test_only_the_reply_to_the_repeated_question_counts_in_chinese():
    text = "1. 灯是什么颜色？绿色。\n2. 桌子是什么颜色？蓝色。"
    assert read_answer(text, "option", HAN, "灯是什么颜色？").found == "B"


@pytest.mark.parametrize(
    "text",
    [
        "Which fruit is it?\nA. apple\nB. pear\nC. plum\nD. fig\nAnswer: D. fig",
        "以下哪个选项是正确的?\n\nA. 日本\nB. 美国\nC. 中国\nD. 法国\n\n答案是 D:法国。",
        "Choices:\n(A) yes\n(B) no",
    ],
)
def test_a_question_with_options_of_its_own_is_not_the_one_asked(text):
    assert read_answer(text, "option", COLOURS, "What colour is the lamp?").found is None


def test_an_answer_before_a_question_with_other_options_counts():
    text = "The answer is B. green\n\nWhich fruit is it?\nA. apple\nB. pear\nC. plum\nAnswer: C"
    assert read_answer(text, "option", COLOURS, "What colour is the lamp?").found == "B"
    repeated = "What colour is it?\nA. red\nB. green\nC. blue\nD. yellow\nAnswer: C"
    assert read_answer(repeated, "option", COLOURS, "What colour is the lamp?").found == "C"


@pytest.mark.parametrize(
    ("text", "asked", "found"),
    [
        ("The chart has 10 bars.", "How many bars are higher than 30?", None),
        ("The picture shows 12 people.", "How many people wear a hat?", None),
        ("There are four wine glasses in the image.", "How many wine glass(s) are in this image?", "4"),
        ("There is only one bench in the image.", "How many bench(s) are in this image?", "1"),
        ("The image shows two cups.", "How many cup(s) are in this image?", "2"),
        ("There are 4 bars higher than 30.", "How many bars are higher than 30?", "4"),
        ("There are 4 such bars.", "How many bars are higher than 30?", "4"),
        ("There are 3 triangles in the picture.", "How many triangles do you see in the picture?", "3"),
        ("The image shows 3 people wearing hats.", "How many people are wearing hats?", "3"),
    ],
)
def test_a_count_of_everything_does_not_answer_a_question_for_some_of_it(text, asked, found):
    assert read_answer(text, "integer", {}, asked).found == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The angle is 60^0.", "60"),
        ("It measures $60^{0}$.", "60"),
        ("The answer is 60^o.", "60"),
        ("\\boxed{120^{o}}", "120"),
        ("∠A = 35^°", "35"),
        ("∠A = 100^0", "100"),
        ("旋转角为$$30^0$$。", "30"),
        ("The temperature is 20^oC.", "20"),
        ("2^0 = 1", "1"),
        ("10^0", None),
        ("10^2", "100"),
    ],
)
def test_degrees_may_be_written_as_a_power(text, found):
    assert read_answer(text, "integer", {}).found == found


@pytest.mark.parametrize(
    ("text", "asked", "found"),
    [
        ("汽车的速度为5m/s。\n\n解析：\n总距离为1110m。\n声音的速度为340m/s", "汽车的速度为____m/s", "5"),
        ("The speed is 5 m/s.\n\nExplanation: the car covers 10 m in 2 s, so", "What is the speed of the car?", "5"),
        ("速度为5m/s。\n解析:由题意可知,速度为8m/s。所以速度为8m/s。", "速度为____m/s", None),
        ("I cannot tell.\n\nExplanation: there are 5 cars", "How many cars?", None),
    ],
)
def test_a_value_before_its_explanation_counts_unless_that_ends_otherwise(text, asked, found):
    assert read_answer(text, "float", {}, asked).found == found


def test_true_on_a_line_of_its_own_counts():
    options = {"A": "True", "B": "False"}
    assert read_answer("True\n\nIn the figure, AC is not a diameter.", "option", options).found == "A"
    assert read_answer("False\n\nIn this figure, AC is a radius.", "option", options).found == "B"


@pytest.mark.parametrize(
    "text",
    [
        "正确答案是：A. 1 和 B. 7/2",
        "答案是：A. 红 与 选项 C. 蓝",
        "综上所述，正确答案是：\n\\[\n\\text{A. } 1 \\quad \\text{和} \\quad \\text{B. } \\frac{7}{2}\n\\]",
        "The answer is A. one and B. two",
    ],
)
def test_options_that_are_joined_with_their_words_are_no_choice(text):
    assert read_answer(text, "option", dict.fromkeys("ABCD", ""), "").found is None


@pytest.mark.parametrize("text", ["-1 / 3 is not an integer.", "5 is not prime.", "7不是偶数。", "12 isn't possible."])
def test_a_sentence_about_a_number_is_not_a_value(text):
    assert read_answer(text, "integer", {}, "What is the limit?").found is None


def test_a_number_that_is_denied_later_is_still_read():
    assert read_answer("There are 5, not 6, cups.", "integer", {}, "How many cups are there?").found == "5"


@pytest.mark.parametrize(
    ("kind", "end", "found"), [("integer", "the total is 5.", "5"), ("option", "it is green.", "B")]
)
def test_a_sentence_of_thousands_of_characters_concludes_nothing(kind, end, found):
    """A model that loops; such a sentence would also take minutes to read."""
    assert read_answer("and so on " * 20 + end, kind, COLOURS, "").found == found
    assert read_answer("and so on " * 500 + end, kind, COLOURS, "").found is None
