"""Every rule of the reader has a text that is read differently without it."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.evaluation.reading.texts.question_words import QuestionWords, repeats_question
from vcsd.evaluation.reading.texts.refusals import after_refusal

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
SHAPES = {"A": "", "B": "", "C": ""}
ANGLES = {"A": "30°", "B": "45°", "C": "60°"}
COUNTS = {"A": "2", "B": "4", "C": "8"}
CLOCKS = {"A": "The clock is wrong", "B": "The clock is right", "C": "None of the above"}
LINES = {"A": "x = 2", "B": "x = 3"}
KINDS = {"A": "a polynomial", "B": "a logarithmic function"}
TRUE_FALSE = {"A": "True", "B": "False"}
YES_NO = {"A": "Yes", "B": "No"}
CURVE = "What is the green curve?"
CUPS = "How many cups are on the table?"
AREA = "Does Aqua have the smallest area?"
TOP = "What is the maximum value of this function?"


def option(text, options=COLOURS, asked=""):
    return read_answer(text, "option", options, asked).found


def number(text, asked=""):
    return read_answer(text, "integer", asked=asked).found


def yes_no(text, asked=""):
    return read_answer(text, "yes_no", asked=asked).found


@pytest.mark.parametrize(
    "learn",
    [
        "tell",
        "choose",
        "pick",
        "identify",
        "know",
        "answer",
        "state",
        "provide",
        "give",
        "find",
        "calculate",
        "compute",
        "conclude",
        "decide",
        "infer",
        "judge",
        "view",
        "analyse",
        "analyze",
        "estimate",
        "predict",
        "measure",
        "solve",
        "make",
        "assess",
        "specify",
        "verify",
        "ascertain",
        "confirm",
        "read",
    ],
)
def test_a_refusal_may_use_any_verb_of_learning(learn):
    assert number(f"It is impossible to {learn} the 3 prices.") is None
    assert number(f"We cannot {learn} the 3 prices.") is None


@pytest.mark.parametrize(
    "known", ["determined", "answered", "known", "found", "calculated", "computed", "inferred", "solved"]
)
def test_a_refusal_may_be_passive(known):
    assert number(f"The sum of the 3 prices cannot be {known}.") is None


@pytest.mark.parametrize(
    "text",
    [
        "There is not enough information about the 3 prices.",
        "There is no reliable data for the 3 prices.",
        "The chart doesn't mention the 3 prices.",
        "I do not have access to the 3 prices.",
        "Nobody could solve it without the table of 3 prices.",
        "I'm sorry about the 3 prices.",
        "Unfortunately, the 3 prices are small.",
        "I apologize for the 3 prices.",
        "I doubt that there are 3 prices.",
        "I am unsure about the 3 prices.",
        "As an AI, I only see the 3 prices.",
        "The sum of the 3 prices is unclear.",
        "The 3 prices are not specified.",
        "You haven't provided the 3 prices.",
        "There was no image is all I can say of the 3 prices.",
        "无法看到3个价格。",
        "没有给出3个价格。",
        "不能确定3个价格。",
        "Please check whether all 3 prices are in the picture.",
        "Please show me the 3 prices and the",
        "It is hard to tell the sum, but I cannot say whether it is 3.",
        "The prices are not given. The 3 signs stand close together.",
        "The price cannot be seen. The sign is small. The photo is dark. It is old. So it may be 3. But I cannot tell.",
        "The answer is unknown without the 3 prices.",
        "Let us look at the value of f(4).",
    ],
)
def test_a_number_of_a_refusal_or_a_request_is_no_answer(text):
    assert number(text) is None


def test_what_is_said_next_to_a_refusal_or_a_request_counts():
    assert number("There are 5 cups. Please show me the") == "5"
    assert number("It is noon. It is hot. It is dry. It is late. There are 5 cups.") == "5"
    assert number("It is hard to tell, but I see 5 cups. It is hot. It is dry. It is late. The 5 cups are red.") == "5"
    text = "I cannot see the lid. It is hot. It is dry. It is late. Therefore, there are 5 cups. They are red."
    assert number(text) == "5"
    assert after_refusal("There are 5 cups.") == "There are 5 cups."


@pytest.mark.parametrize(
    "text",
    [
        "None of these options shows 45°.",
        "The angle is 45°, but that is not listed among the choices.",
        "The options do not include 45°.",
        "There seems to be a mistake in the question, as 45° comes out.",
        "选项里没有45°。",
        "没有45°这个选项。",
    ],
)
def test_an_option_that_is_not_offered_is_not_chosen(text):
    assert option(text, ANGLES) is None


@pytest.mark.parametrize(
    ("options", "text", "found"),
    [
        *[(COLOURS, text, None) for text in ("The answer is B/C.", "Answer: B & C", "答案是B和C")],
        (COLOURS, "The answer is B+C. The rest follows.", None),
        (COLOURS, "The answer is B and I am sure.", "B"),
        (COLOURS, "The answer is A. red (I think)", "A"),
        (COLOURS, "The answer is B.\nB. green is what I see.", "B"),
        (COLOURS, "The answer is red.\nB. would be too cold.", "A"),
        (COLOURS, "A. red is too warm.\nB. green is too cold.\nSo it is blue.", "C"),
        (COLOURS, "The answer is the red one next to the green one.", None),
        (COLOURS, "The lamp is red. The lamp is green.", None),
        (COLOURS, "The lamp looks red at first. The lamp is most likely green.", "B"),
        (COLOURS, "Could the roof be green?", None),
        (COLOURS, "The answer is A lamp of green glass.", "B"),
        (COLOURS, "It is on. So E.", None),
        (COLOURS, "I'd say E", None),
        (COLOURS, "The answer is red. This took a long while to see. So the answer is green.", None),
        (COLOURS, "The correct option is B. The lamp shines, so the answer is green.", "B"),
        (COLOURS, "The answer is B. There are 4 lamps. Therefore, there are 10 lights.", "B"),
        (COLOURS, "So \\boxed{}. It is green.", "B"),
        (COLOURS, "The lamp is green. I hope this helps you with the red one.", "B"),
        (COLOURS, "Looking at all the lamps in this room I would say green", "B"),
        (COLOURS, "The lamp is red + warm.", "A"),
        (CLOCKS, "The answer is A. The clock is wrong", "A"),
        (CLOCKS, "The answer is C. None of the above", "C"),
        (SHAPES, "So option (B) does not fit.", None),
        (SHAPES, "The picture on the left (A) is the least likely match.", None),
        (SHAPES, "The picture on the left (A) has a hat.", None),
        (SHAPES, "Point B is the correct point (B). It is round.", "B"),
        (SHAPES, "The answer is B because it is round. The rest follows.", "B"),
        (SHAPES, "The answer is A because it is round. The rest follows.", "A"),
        (SHAPES, "The answer is B after all. The rest follows.", "B"),
        (SHAPES, "The answer is A (round one). The rest follows.", "A"),
        (SHAPES, "The answer is A dog. The rest follows.", None),
        (SHAPES, "The answer is (B)round one. The rest follows.", "B"),
        (SHAPES, "The answer is (B) = round one. The rest follows.", "B"),
        (SHAPES, "The answer is A.M. and not noon.", None),
        (SHAPES, "I can see **B** here, which is the one with the round hat, as far as I know.", "B"),
        (SHAPES, "I can see **A Lamp Of Glass** here, which is the one with the round hat, as far as I know.", None),
        ({"A": "a cup", "B": "a bowl"}, "So it is the cup.", "A"),
    ],
)
def test_a_letter_is_chosen_only_if_it_is_meant(options, text, found):
    assert option(text, options) == found


@pytest.mark.parametrize(
    ("options", "text", "found"),
    [
        (ANGLES, "Since one angle is 30°, the other one is x = 60°.", "C"),
        (LINES, "So the line is x = 2.", "A"),
        ({"A": "150", "B": "180"}, "The answer is 180 - k.", None),
        (COUNTS, "The answer is a/(2). The rest follows.", None),
        (COUNTS, "The answer is 4*2.", None),
    ],
)
def test_an_operand_is_not_an_option(options, text, found):
    assert option(text, options) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The answer is false. The lamp shows it plainly.", "B"),
        ("So this is true. Its answer is: False. The lamp shows it.", "B"),
    ],
)
def test_the_words_true_and_false_are_options(text, found):
    assert option(text, TRUE_FALSE) == found


def test_no_at_the_beginning_outweighs_a_letter_of_the_drawing():
    assert option("No, option A of the drawing is the longer one.", YES_NO) == "B"


def test_a_first_sentence_that_names_an_option_of_the_question_chooses_nothing():
    assert option("The green curve is a polynomial. It is hot.", KINDS, "Is the green curve a polynomial?") is None
    assert option("To name the green curve, recall what a polynomial is. It is hot.", KINDS, CURVE) is None
    assert option("The green curve is a polynomial. But I cannot determine it.", KINDS, CURVE) is None


@pytest.mark.parametrize(
    ("asked", "text", "found"),
    [
        ("Which colour is it?", "I look at the lamp again.\nQuestion: Which colour is it?\nThe answer is C.", "C"),
        ("Which colour is it?", "I cannot answer this without it.\nQuestion: What is 2 + 2?\nThe answer is A.", None),
        ("", "Sure.\nQuestion: Which colour is it?\nAnswer: C", "C"),
    ],
)
def test_a_question_that_the_model_invents_is_not_the_one_asked(asked, text, found):
    assert option(text, asked=asked) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("At x = 3 the curve reaches 14.", "14"),
        ("From the slope m = 3 it follows that y is 14.", "14"),
        ("The angle is π / 3.", None),
        ("One can see the answer in the chart.", None),
        ("Red: 5\nTotal: 12", "12"),
        ("a = 3\nb = 4", None),
        ("The answer is yes, 37% of them.", None),
        ("The total is 4 + 4.", None),
        ("Counting gives 4 cups, so 4 it is.", "4"),
        ("Of 9 cups, the number is 5 short of what the guests asked for.", None),
        ("So x = 3 of 5 cups.", None),
        ("So x = the root of 5.", None),
        ("There are 5 cups; nothing else is there.", "5"),
        ("There are 3 cups on the big", None),
        ("There are 3,", None),
        ("3 cups of green tea", "3"),
        ("答案是三", "3"),
        ("桌上有8个杯子,红色的有3个。", "3"),
        ("桌上有8个杯子,红色的有3", None),
        ("The answer is 7. It was 5 before that.", "7"),
        ("The answer is 3 or 4, as x = 5.", None),
        ("The answer is n + 1 = 5.", "5"),
        ("Are there 5 cups?", None),
        ("Therefore, 4 are left. There are 6 cups.", None),
        ("It happened in 1970.", "1970"),
        ("In 1970, 5 cups were sold.", "5"),
        ("1" * 60, None),
        ("The answer is 10.\nThere are 4 red bags.", "10"),
        ("The answer is found in 2 steps. We add 3 and 4.", None),
        ("The answer is total: 12\nThat is all of them.", "12"),
        ("The answer is 12.\nMay: 5", "12"),
        ("print(total)\n5", None),
        ("\\boxed{} There are 5 cups.", "5"),
    ],
)
def test_the_number_that_is_meant_is_read(text, found):
    assert number(text) == found


@pytest.mark.parametrize(
    ("asked", "text", "found"),
    [
        (CUPS, "There are 3 cups on the table. The table has 4 legs.", None),
        (CUPS, "There are 3 cups on the table. So with the hidden one there are 4.", "4"),
        (CUPS, "The chart is 5 years old. It is nice.", None),
        (CUPS, "Cups on the table come with 5 saucers each. They are white.", None),
        (CUPS, "There are no plates on it.", None),
        (CUPS, "There are no cups left, but 3 plates.", None),
        (f"{CUPS}\nChoices:\n(A) 3 cups\n(B) 4 cups", "There are 3 cups.", "3"),
        ("<image 1> How many cups?", "I can only count 1 here.", "1"),
        ("How long is the side of 6 cm?", "The side is 6 cm.", None),
        ("What is 5 times 1?", "It is 5.", "5"),
        ("Is it 6?", "It is 6.", "6"),
        ("A box gives 5 coins. What gives 12?", "The box gives 5.", None),
        ("A box gives 5 coins. What is left?", "The rest leaves 5.", "5"),
        (TOP, "It is impossible to say why the maximum value of the function is 3. It is steep.", None),
        (TOP, "The maximum value of the function is 3. Unfortunately, it is dark.", None),
    ],
)
def test_the_question_tells_which_number_is_meant(asked, text, found):
    assert number(text, asked) == found


@pytest.mark.parametrize(
    ("asked", "text", "found"),
    [
        (AREA, "Perhaps Aqua has the smallest area.", None),
        (AREA, "Aqua has the smallest area is not given.", None),
        ("Is the red bar > the blue bar?", "The red bar stands left of the blue bar.", None),
        ("Is the cup not red at all?", "The cup is not red at all.", None),
        ("Is it red?", "It is red, said the man in the hat.", None),
        ("Does the big cup hold more water?", "The big cup holds more water.", "Yes"),
        ("", "Yes indeed, the cup is red.", "Yes"),
        ("", "In the end it says yes, and also no.", None),
    ],
)
def test_yes_and_no_need_no_word_but_no_doubt_either(asked, text, found):
    assert yes_no(text, asked) == found


@pytest.mark.parametrize(
    ("sentence", "asked", "is_repeated"),
    [
        ("The lamp is on.", "Which lamps?", True),
        ("The tie is 4.", "Which ties?", True),
        ("The glas is 4.", "Which glass?", False),
        ("The ga is 4.", "Which gas?", False),
    ],
)
def test_only_the_plural_is_ignored_in_a_repeated_question(sentence, asked, is_repeated):
    assert repeats_question(sentence, QuestionWords(asked)) is is_repeated


@pytest.mark.parametrize(
    "later",
    [
        "In the figure, angle B is right.",
        "Here ∠B is right.",
        "It is not true that B is correct.",
        "At first A or B is best.",
        "Here A and B is best.",
        "Here A, B is correct in part.",
        "Or is it that B is correct?",
        "Note that B is the right angle.",
        "I wonder whether the answer is B.",
        "You may ask if the answer is B.",
        "This is not the answer: B.",
        "That is not an answer: B.",
        "If it shows B, then our final answer is B.",
        "If it shows B, then your answer is B.",
    ],
)
def test_a_letter_that_is_only_talked_about_does_not_override_the_answer(later):
    assert option(f"The answer is D. {later} The rest follows.") == "D"


@pytest.mark.parametrize(
    "said",
    [
        *(
            "C is right",
            "C is the right one",
            "C is right as it is round",
            "C is the right choice",
            "C must be correct",
        ),
        *(
            "C seems best",
            "C is clearly correct",
            "C is indeed correct",
            "C is the most accurate",
            "C is the only answer",
        ),
        *("I would lean towards C", "I choose option C", "I pick choice C", "I select answer C", "I go with C"),
        *(
            "The answer would be C",
            "The choice is C",
            "My choice is C",
            "My selection: C",
            "The best option should be C",
        ),
        *("The only choice that fits is C", "The only option that fits: C", "The answer\nC"),
        *("答案应当是C", "答案应是C", "对应选项应该是C", "对应选项应当为C", "对应选项应是C", "这里选择为C"),
        *("正确的应该是C", "正确的应当为C", "正确的应是C", "C项正确", "C是正确的", "C为正确"),
    ],
)
def test_a_letter_may_be_stated_in_many_ways(said):
    assert option(f"{said}. The rest follows.", SHAPES) == "C"


@pytest.mark.parametrize("text", ["B选项为A的两倍。", "B选项正确吗", "B正确与否"])
def test_a_chinese_letter_in_a_comparison_or_a_question_is_not_stated(text):
    assert option(text, SHAPES) is None


@pytest.mark.parametrize(
    "text",
    [
        "I am an AI with 3 prices.",
        "I am just a program with 3 prices.",
        "No figure has been shown with 3 prices.",
        "I am not certain about the 3 prices.",
        "It is uncertain whether there are 3 prices.",
        "The table is missing some of the 3 prices.",
        "They did not include the 3 prices.",
        "They do not include the 3 prices.",
        "没有足够的3个价格。",
        "没有提供3个价格。",
        "不能判断3个价格。",
        "If you can, count the 3 prices.",
        "You would need the 3 prices.",
        "You will need the 3 prices.",
        "To obtain the 3 prices, look inside.",
        "For instance, there are 3 prices.",
        "Let's say there are 3 prices.",
        "Let's assume there are 3 prices.",
        "Let's suppose there are 3 prices.",
        "The result is the number of balls plus 10.",
        "The result is the number of balls divided by 10.",
        "The result is the width + 10.",
        "The result is the width × 10.",  # noqa: RUF001
        "It was 87, which leaves 13.",
        "The answer is no, 37% of them.",
        "- red 5\n- blue 4",
        "(a) 5\n(b) 4",
        "def area(x):\n5",
        "import math\n5",
        "from math import pi\n5",
    ],
)
def test_a_number_that_is_only_talked_about_is_no_answer(text):
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *[(f"I cannot see the lid. Given {what}, there are 5 cups.", "5") for what in ("this", "these", "the box")],
        *[(f"The count is 5 {why} 3 were sold.", "5") for why in ("because", "since", "as")],
        ("The length is 5, rounded from 4.8.", "5"),
        ("From m = 3 it follows that y equals 14.", "14"),
        ("At x = 3 and y = 4 the curve reaches 14.", "14"),
        ("At x = 3, y = 4 the curve reaches 14.", "14"),
        ("最终结果是7。其余略。", "7"),
    ],
)
def test_a_number_with_others_around_it_is_read(text, found):
    assert number(text) == found


def test_the_options_and_the_year_of_a_question_are_recognised():
    assert number("There are 3 cups.", f"{CUPS}\nOptions:\n(A) 3 cups\n(B) 4 cups") == "3"
    assert number("In 2012, the rain was 88 cm.", "What year had the most rain?") == "2012"


@pytest.mark.parametrize(
    "text", ["选项里没有 45°。", "没有 45° 这个选项。", "None of those shows 45° and is an option."]
)
def test_an_option_that_is_missing_is_not_chosen(text):
    assert option(text, ANGLES) is None


def test_an_option_on_the_right_of_an_equation_counts():
    assert option("Since one angle is 30°, the other one is x = 60° in this figure.", ANGLES) == "C"
    assert option("选项 (A) 30°是正确的答案。", ANGLES) == "A"


@pytest.mark.parametrize(
    ("asked", "text", "found"),
    [
        ("", "In the end, the claim is right.", "Yes"),
        ("", "In the end, the claim is not correct.", "No"),
        ("", "In the end, the claim is not right.", "No"),
        ("", "这个说法是正确的。", "Yes"),
        ("", "这是对的。", "Yes"),
        ("", "No, we cannot tell.", None),
        ("", "It isn't yes.", None),
        ("", "No or yes.", None),
        (AREA, "Aqua doesn't have the smallest area.", "No"),
        (AREA, "When Aqua has the smallest area, it is last.", None),
        (AREA, "Possibly Aqua has the smallest area.", None),
        (AREA, "Assuming that Aqua has the smallest area, it is last.", None),
    ],
)
def test_yes_and_no_in_other_words(asked, text, found):
    assert yes_no(text, asked) == found
