"""Options that are judged one by one: a judgement is a choice only if it leaves one of them."""

# ruff: noqa: RUF001

import pytest

from vcsd.evaluation.reading import read_answer

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
LETTERS = dict.fromkeys("ABCD", "")
CAUSES = {"A": "地形", "B": "纬度位置", "C": "海陆位置", "D": "大气环流"}
ASKS_RIGHT, ASKS_WRONG = "下列叙述正确的是( )", "下列叙述错误的是( )"


def option(text, options=LETTERS, asked=""):
    return read_answer(text, "option", options, asked).found


@pytest.mark.parametrize(
    "text",
    [
        "因此,选项 A 和 C 是错误的。",
        "选项A、C都是错误的。",
        "所以选项 B、C 均不正确。",
        "可以排除选项A和选项B。",
        "Therefore, options B and D are wrong.",
        "Option A and C are incorrect.",
        "Options A and C can both be eliminated.",
        "The wrong option is D.",
        "An incorrect answer is D.",
        "One wrong choice is B.",
        "The only wrong answer is C.",
        "The answer that is wrong is C.",
        "The least likely answer is B.",
        "An incorrect description is:\n\nC. blue",
        "不正确的是B。",
    ],
)
def test_what_is_called_wrong_is_not_chosen(text):
    assert option(text, COLOURS, "What colour is the lamp?") is None


@pytest.mark.parametrize(
    ("text", "asked", "found"),
    [
        ("因此，选项D是错误的。", ASKS_WRONG, "D"),
        ("因此，选项D是错误的。", ASKS_RIGHT, None),
        ("图中没有桥, 选项D是不正确的。因此, 选项D是不正确的。", "下列说法不正确的一项是", "D"),
        ("错误的叙述是C。", ASKS_WRONG, "C"),
        ("不正确的是B。", "下列说法不正确的是", "B"),
        ("因此，选项 B 和 D 是错误的。", ASKS_WRONG, None),
        ("A. 甲最大。这是错误的。\nB. 乙最小。这是正确的。\n因此，选项D是错误的。", ASKS_WRONG, None),
        ("The wrong statement is D.", "Which statement is wrong?", "D"),
        ("An incorrect answer is D.", "Which statement is incorrect?", None),
        ("Therefore, statement C is not true.", "Which of these statements is not true?", "C"),
        ("Statement A is false. Statement C is false.", "Which statement is false?", None),
        ("Statement A may be false.", "Which statement is false?", None),
        ("Option B is correct.", "Which statement is false?", None),
        ("选项A是正确的。", ASKS_WRONG, None),
        ("【答案】选项A是正确的。", ASKS_WRONG, "A"),
        ("B is the correct answer.", "Which statement is false?", "B"),
        ("The least suitable tool is B.", "Which tool is least suitable?", "B"),
        ("Option B is correct.", "It is raining. True or False?", "B"),
    ],
)
def test_a_question_for_the_wrong_one_is_answered_by_the_only_one_called_wrong(text, asked, found):
    assert option(text, asked=asked) == found


@pytest.mark.parametrize(
    "text",
    [
        "选项A是正确的。选项B是错误的。选项C也是正确的。",
        "A选项正确，因为图上有山。B选项错误。C选项也正确。",
        "选项A：说法正确，与图一致。\n选项B：说法正确，也与图",
        "因此，选项 A 和 B 是正确的结论，选项 C 和 D 是错误的结论。",
        "Option A is correct: the curve rises. Option B is also correct, since it falls later.",
        "A is correct. B is incorrect. C is correct. D is incorrect.",
        "Choice A is right; choice B is right too.",
        "Option A is correct. However, option C is also correct.",
    ],
)
def test_several_options_that_are_called_right_choose_none(text):
    assert option(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "选项A是正确的，图中可以看出。\n\n选项B是",
        "(A) is correct. (B) is wrong. (C) is",
        "Option A is correct, as the picture shows.\nOption B",
        "选项A是正确的吗？我不确定。",
        "If A is correct, then B is wrong.",
        "Whether A is correct is not clear.",
        "Many would say that B is correct.",
    ],
)
def test_a_judgement_that_is_broken_off_or_doubted_chooses_none(text):
    assert option(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A项正确；B项错误；C项错误；D项错误。", "A"),
        ("A is incorrect. B is correct. C is incorrect. D is incorrect.", "B"),
        ("选项A、B和D都不对，所以选C。", "C"),
        ("可以排除选项A和选项B，因此选D。", "D"),
        ("C is incorrect, B is correct.", "B"),
        ("Option A is the correct answer because the line rises. Option B", "A"),
    ],
)
def test_the_only_option_that_is_called_right_is_chosen(text, found):
    assert option(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("选项A是正确的，因为主导因素是纬度位置。", None),
        ("选项A是正确的。主导因素是纬度的位置。", None),
        ("所以选项C是正确的，主导因素是海陆位置。", "C"),
        ("因素之一是地形。因此需要考虑的因素之一是海陆位置。", None),
        ("山区海拔很高, 所以要考虑地形。山区海拔很高, 所以也要考虑大气环流。", None),
        ("因此，气温主要取决于A. 地形，因为这里海拔较高。\n\n选项B、C和D都不正确。", "A"),
        ("答案是B。这里纬度较高。", "B"),
    ],
)
def test_the_words_of_other_options_and_several_reasons_raise_doubt(text, found):
    assert option(text, CAUSES, "主导因素是") == found


def test_the_words_of_another_option_after_praise_raise_doubt_in_english():
    assert option("Option A is correct. The lamp is green.", COLOURS) is None
    assert option("Option B is correct. The lamp is green.", COLOURS) == "B"
    assert option("One of the reasons is the storm.", {"A": "the storm", "B": "the fire"}, "What is the cause?") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("图中符合描述的是：\n\nA. 地形\n\n其他选项不符合。", "A"),
        ("正确的说法是：\n\nA. 地形\n它很重要。\n\nB. 纬度位置\n它也重要。", None),
    ],
)
def test_an_option_on_a_line_of_its_own_after_a_colon_is_chosen_if_no_other_follows(text, found):
    assert option(text, CAUSES) == found


def test_the_line_after_a_colon_must_be_what_the_question_asks_for():
    text = "The false statement is:\n\n(D) yellow\n\nThe reasoning is as follows: the lamp is off."
    assert option(text, COLOURS, "Which statement is false?") == "D"
    assert option(text, COLOURS, "Which statement is true?") is None
