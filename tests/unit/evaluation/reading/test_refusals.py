"""Refusals, doubts, examples and further questions: their numbers and options are not answers."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.evaluation.reading.texts.refusals import after_refusal, asks_for_more, refuses

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
LETTERS = {"A": "A", "B": "B", "C": "C"}
ANGLES = {"A": "30°", "B": "45°", "C": "60°", "D": "65°"}
YES_NO = {"A": "Yes", "B": "No"}
SPICES = {"A": "5", "B": "8", "C": "13"}


def number(text, asked=""):
    return read_answer(text, "integer", asked=asked).found


def option(text, options=COLOURS, asked=""):
    return read_answer(text, "option", options, asked).found


@pytest.mark.parametrize(
    "text",
    [
        "I am unable to determine the age gap between the two people.",
        "It is impossible to determine the value of f(4).",
        "Without more information it is not possible to tell how old the two of them are.",
        "As an AI, I cannot view images. Please provide the ages of the two people.",
        "The text does not provide the number of bars above 40.",
        "The question does not provide enough information to determine the value of f(0).",
        "However, no values are given. Therefore, we cannot determine how many bars are above 8.",
        "The sum is undefined for R = 1. The final value is: undefined",
        "For example, if the smallest bar shows 5, the answer will be 5.",
        "If it holds for n = 2, then the answer is 2, and so on. It depends on the chart.",
        "The answer is (n/2) + 1.",
        "The answer to this question is yes, as the share in 2015 is 37% and the average share is 32%.",
    ],
)
def test_a_refusal_or_an_example_states_no_number(text):
    assert number(text) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (COLOURS, "It is not possible to select either option (A) or (B)."),
        (COLOURS, "The answer is A, B, C, or D."),
        (COLOURS, "The answer is (A) red, (B) green, (C) blue and (D) yellow."),
        (COLOURS, "The answer is A. red B. green C. blue D. yellow"),
        (COLOURS, "The answer is A) red, B) green, C) blue"),
        (SPICES, "So the answer is A (5) and B (8)."),
        (COLOURS, "(B) green is not the correct choice."),
        (COLOURS, "(B) The green one is not the correct choice."),
        (COLOURS, "(B) green, which shows grass, is not the right answer."),
        (COLOURS, "(B), as shown in the picture, is not the correct choice"),
        (COLOURS, "(B) A lawn is not the best choice."),
        (COLOURS, "(B) shows a lawn. That is not the correct choice."),
        (COLOURS, "(B) is what it seems, but it is not the correct choice."),
        (COLOURS, "(B) would be plausible but isn't the correct choice"),
        (COLOURS, "(B) is plausible but not correct."),
        (COLOURS, "Look at the picture.\nOption B, the green one, cannot be the right choice."),
        (COLOURS, "(A) red, (B) green and (C) blue are common. The lamp (D) yellow is not used here."),
        (COLOURS, "So none of the given options A, B, C, D is correct."),
        (ANGLES, "Hence the angle is 25° + 65° = 90°. However, this option is not available in the choices."),
        (ANGLES, "It equals 95° - 30°, which is 65 or so."),
        (COLOURS, "The lamp could be green or another dark colour."),
        (YES_NO, "Therefore, the answer is not determinable and there is no correct option letter."),
        (YES_NO, "(C) Yes\n(D) No"),
        (LETTERS, "The object that comes next is a round box."),
        (SPICES, "The clock shows (A) 8."),
    ],
)
def test_doubt_chooses_no_option(options, text):
    assert option(text, options) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The answer is B.\n\nQuestion: How many legs has a spider?\n(C) 8\nThe answer is C.", "B"),
        ("So the roof is green. The answer is B.\nHint: Please answer with a letter.\nThe answer is D.", "B"),
        ("I cannot answer this without the picture.\n\nQuestion: What is 2 + 2?\n(A) 4\nThe answer is A.", None),
        ("Let me repeat the task:\nQuestion: Which colour is it?\nAnswer: C", "C"),
        ("As the figure shows, angle B is the right angle. The answer is D.", "D"),
        ("The answer is (A) red. (B) green is wrong, since the lamp is on.", "A"),
        ("The answer is D. To see this, look at the corner: B is the right angle of the figure.", "D"),
        ("The answer is D, since B is the right angle.", "D"),
        ("It is not clear. So I would go with the best guess: the answer is (A) red.", "A"),
        ("(B) green, because red is not the correct choice.", "B"),
        ("B. The others are not the right choice.", "B"),
        ("B is correct and A is not the correct choice.", "B"),
        ("(A) is not the correct choice, so the answer is B.", "B"),
    ],
)
def test_the_answer_to_the_question_asked_counts(text, found):
    assert option(text) == found


def test_a_statement_after_a_refusal_counts():
    assert option("We cannot determine it from the text. The answer is (B).") == "B"
    assert number("The picture is not given. Let us assume 3 and 4. So, there are 7 cups.") == "7"
    assert number("It is hard to tell, but there seem to be 5 cups.") == "5"


def test_a_statement_that_is_taken_back_at_the_end_is_a_contradiction():
    assert number("The answer is 1.\nThere are 4 red bags.\nTherefore, there are 10 bags with") is None
    assert number("The answer is 10.\nThere are 4 red bags.\nTherefore, there are 10 bags.") == "10"


def test_only_sentences_without_an_answer_are_refusals():
    assert refuses("抱歉,无法确定。")
    assert not refuses("The two lines do not meet, so the answer is B.")
    assert asks_for_more("Could you share the picture?")
    assert not asks_for_more("The picture shows 3 cups.")
    assert after_refusal("Most likely D, although it is hard to see.") == "Most likely D"


@pytest.mark.parametrize(
    "said",
    [
        "The answer is based on 2 facts read from the chart. Putting them together gives 8 years.",
        "Answer: To find this, we look at 3 bars. The tallest one shows 45.",
        "The correct answer is found by counting the 4 rows. Each row has 5 dots, so there are 20 dots.",
        "Answer: there are 10 balls at first. We subtract 3 balls. 7 balls remain.",
        "The answer is obtained in 2 steps. The result is 14.",
    ],
)
def test_a_number_in_a_preamble_does_not_beat_the_conclusion(said):
    assert read_answer(said, "integer").found is None


def test_a_sentence_about_the_answer_counts_if_the_conclusion_agrees():
    assert read_answer("The answer is that 9 are left. 4 + 5 = 9.", "integer").found == "9"
    assert read_answer("The answer is, as the chart shows, 9.", "integer").found == "9"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "It isn't possible to determine the 2 ages.",
            "There's no way to know the 2 ages.",
            "I won't be able to give the 2 ages.",
        ),
        *(
            "The image doesn't show the 3 prices.",
            "I have no idea how many of the 3 are left.",
            "It's unclear which of the 3 is red.",
        ),
        *(
            "The 3 prices aren't given.",
            "The 3 prices are not visible.",
            "The 3 prices are too blurry to read.",
            "I don't know the 3 prices.",
        ),
        *(
            "I don't see any of the 3 prices.",
            "There isn't enough information about the 3 prices.",
            "It depends on the 3 prices.",
        ),
        *(
            "The question about the 3 prices is unanswerable.",
            "More information is needed about the 3 prices.",
            "We lack the 3 prices.",
        ),
        *(
            "It would require knowing the 3 prices.",
            "The picture fails to show the 3 prices.",
            "I refuse to guess the 3 ages.",
        ),
        *("I'd rather not guess the ages of the 2 people.", "It is not appropriate to guess the ages of the 2 people."),
        *(
            "我不知道这3个价格。",
            "看不清这3个价格。",
            "图中没有显示3个价格。",
            "难以确定3个价格。",
            "这3个价格未知。",
            "需要更多信息才能知道3个价格。",
        ),
    ],
)
def test_a_refusal_in_other_words_states_no_number(text):
    assert number(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("The options don't include 45°.", "The angle is 45°, which isn't an option.", "45° isn't among the choices."),
        *("The options doesn’t match 45°.", "No option says 45°.", "I get 45°, but no option fits.", "45°不在选项中。"),  # noqa: RUF001
        *(
            'The closest one is 45°. But the actual answer should be "none".',
            "The angle doesn't look 45°.",
            "It is hardly 45°.",
        ),
    ],
)
def test_an_option_that_does_not_fit_is_not_chosen(text):
    assert option(text, ANGLES) is None


@pytest.mark.parametrize(
    "text",
    [
        *("B or maybe C", "(B) cannot be the answer.", "(B) seems wrong.", "I can't pick A."),
        *("不选B。", "选项B不符合。", "选项B错误。", "应该排除选项B。", "选A和C。"),
    ],
)
def test_a_letter_that_is_doubted_or_denied_is_not_chosen(text):
    assert option(text) is None


def test_only_the_letter_that_is_denied_is_dropped():
    assert option("The answer is D. B is not correct. The rest follows.") == "D"
    assert option("不应选B,应选C。") == "C"
    assert option("排除A和B,选C。") == "C"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "The answer can be found in 3 steps.",
            "The answer is in row 3.",
            "Figure 3 shows it.",
            "As shown in step 4.",
        ),
        *("Step 1: count the cups.", "答案在第3步。", "需要3步。"),
    ],
)
def test_the_number_of_a_step_or_a_figure_is_no_answer_unless_it_is_asked_for(text):
    assert number(text, "How many cups are there?") is None
    assert number("Figure 3 shows it.", "Which figure shows a cup?") == "3"


def test_a_row_of_numbers_is_no_answer():
    assert (
        number("1 3 5 1 4 2 4", "Fill in the digits. 3 across, 5 down, 2 in all, 4 corners. Which number is it?")
        is None
    )
