"""What does not override a stated answer: examples, conditions, instructions, beliefs of others, further questions."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer

SHAPES = {"A": "", "B": "", "C": "", "D": ""}


def option(text, asked=""):
    return read_answer(text, "option", SHAPES, asked).found


@pytest.mark.parametrize(
    "later",
    [
        *(
            "e.g. the answer is B.",
            "E.g., the answer is B.",
            "(For instance: the answer is B.)",
            "Imagine the answer is B.",
        ),
        *(
            "Assume the answer is B.",
            "Assuming the answer is B, it would be off.",
            "If it were off, the answer would be B.",
        ),
        *(
            "If the lamp is off, the answer is B.",
            "Had it been off, the answer would be B.",
            "Otherwise the answer would be B.",
        ),
        *("Were it off, the answer would be B.", "Unless it is off, in which case the answer is B."),
        *(
            'I was told to end with "the answer is X".',
            'The format is "The answer is B".',
            "Please end with 'the answer is X'.",
        ),
        *(
            "You might think the answer is B.",
            "One could argue that the answer is B.",
            "It is tempting to say the answer is B.",
        ),
        *(
            "A common mistake is to say the answer is B.",
            "At first I thought that the answer is B.",
            "The wrong answer is B.",
        ),
        *(
            "The second best answer is B.",
            "In another problem the answer is B.",
            "In the previous question, the answer is B.",
        ),
        *(
            "Someone who looks only at the hue would choose B.",
            "I would not choose B.",
            "Don't choose B.",
            "I can't pick B.",
        ),
        *(
            "It would be wrong to choose B.",
            "If you choose B, you lose.",
            "B is correct if the lamp is off.",
            "B isn't correct.",
        ),
        *(
            "I doubt that B is correct.",
            "It is false that B is correct.",
            "B is the best known shape.",
            "B is the most accurate clock.",
        ),
        *(
            "例如,答案是B。",
            "假如灯灭了,答案是B。",
            "有人会说答案是B。",
            "错误的答案是B。",
            "说B正确是错的。",
            "若灯灭,则答案为B。",
        ),
    ],
)
def test_a_statement_that_is_not_meant_does_not_override_the_answer(later):
    assert option(f"The answer is D. {later}") == "D"
    assert option(f"The answer is D. {later} The rest follows.") == "D"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "If we add both, the answer is B.",
            "If I had to choose, the answer would be B.",
            "As you can see, the answer is B.",
        ),
        *(
            "If it is on, it must be green, so the answer is B.",
            "For example, A is red. So the answer is B.",
            "I'm going with B.",
        ),
        *('So I conclude with: "The answer is B".', "First I thought the answer is A. Now I see that the answer is B."),
        *(
            "Those are red so I select B.",
            "You might think it is A, but the answer is B.",
            "如果看图,可以知道是绿色,所以答案是B。",
        ),
    ],
)
def test_a_statement_with_a_condition_or_a_quote_may_be_the_answer(text):
    assert option(text) == "B"


def test_a_condition_answers_a_question_that_imagines_something():
    text = "If the gulls left, the answer would be B."
    assert option(text, "What would happen if the gulls left?") == "B"
    assert option(text, "What is it?") is None


@pytest.mark.parametrize(
    "further",
    [
        *("Next question: Which is red?\nThe answer is A.", "### Question\nWhich is red?\n### Answer\nA"),
        *("Exercise 2: Which is red?\nAnswer: A", "Follow-up question: Which is red?\nThe answer is A."),
        *(
            "Problem 2. Which is red?\nThe answer is A.",
            "问题2:哪个是红色的?\n答案是A。",
            "Input: Which?\nOutput: The answer is A.",
        ),
        *(
            "[INST] Which is red? [/INST] The answer is A.",
            "<|im_start|>user\nRed?<|im_end|>\n<|im_start|>assistant\nThe answer is A.",
        ),
    ],
)
def test_the_answer_to_a_further_question_does_not_count(further):
    assert option(f"The answer is B.\n\n{further}") == "B"


def test_a_number_that_is_imagined_does_not_override_the_answer():
    for later in (
        "If one more came, the answer would be 4.",
        "Some would say the answer is 4.",
        'End with "The answer is 4".',
    ):
        assert read_answer(f"The answer is 3. {later}", "integer").found == "3"


@pytest.mark.parametrize(
    "further",
    [
        *(" Now, a second question: Which is red? The answer is C.", " Next question: Which is red? The answer is C."),
        *(
            " Now let us consider another question: Which is red? So C is correct.",
            " 2. Which is red? The answer is C.",
        ),
        *("\n2. Which is red?\nA. x\nB. y\nThe answer is C.", "\n\n2) Which of these is red? The answer is C."),
        *(" Here is a new problem: What is red? The answer is C.", "\n(2) Which is red? The answer is C."),
        *("下一个问题:哪个是红色的?答案是C。", "\n2. 哪个是红色的?答案是C。", "第二题:哪个是红色的?答案是C。"),
    ],
)
def test_the_answer_to_a_question_of_its_own_within_a_line_does_not_count(further):
    assert option(f"The answer is B.{further}") == "B"
    assert option(f"The lamp on the left is green. So the answer is B.{further}") == "B"
    assert read_answer(f"The answer is 3.{further}".replace("C", "7"), "integer").found == "3"


@pytest.mark.parametrize(
    "text",
    [
        "1. Which lamp is red? The left one.\n2. Which lamp is green? The right one. So the answer is C.",
        "Let me ask two things.\n1. What is red? The lamp.\n2. What is green? The cup.\nThe answer is C.",
        "To answer the second question: the lamp is red. The answer is C.",
        'The right choice fits:\n1. The first set is "A E".\n2. The second set is "J ?".\nSo A is on. The answer is C.',
        "The answer is A or C. Now, let us use the second problem: it is red. The answer is C.",
    ],
)
def test_questions_that_lead_to_the_answer_do_not_end_it(text):
    assert option(text) == "C"


def test_a_list_of_questions_after_an_answer_leaves_it_unclear():
    assert option("The answer is B.\n1. Which is red? The left one, so the answer is C.") is None
    assert option("14. Which is red?\nAnswer: A\n15. Which is blue?\nAnswer: C") is None
    assert option("The answer is B.\n1. Which is green? The left one, so the answer is B.") == "B"


@pytest.mark.parametrize(
    "said",
    [
        *("The answer is, for example, {}.", "An example answer is {}.", "An example of an answer is {}."),
        *("The answer could be, e.g., {}.", "A sample answer is {}.", "Example answer: {}", "答案是,例如,{}。"),
        *(
            "The answer would be, for instance, {}.",
            "The answer is (for example) {}.",
            "答案例如是{}。",
            "答案比如{}。",
        ),
    ],
)
def test_an_example_is_not_the_answer(said):
    assert option(said.format("B")) is None
    assert read_answer(said.format(4), "integer").found is None
    assert option(f"The answer is D. {said.format('B')}") == "D"
    assert read_answer(f"The answer is 7. {said.format(4)}", "integer").found == "7"


@pytest.mark.parametrize(
    "said",
    [
        *("The reference solution suggests the answer is {}.", "The answer key says that the answer is {}. But I find"),
        *(
            "But the reference solution says the answer is {}. Let's recheck its approach: the",
            "The given answer is {}, but",
        ),
        *(
            "According to the reference solution, the answer is {}. However, we",
            "The textbook claims the answer is {}. Let",
        ),
        *("参考解答认为答案是{},但是我们需要重新计算,因为", "题目给出的答案是{},但是我们需要重新"),
    ],
)
def test_an_answer_that_is_only_reported_does_not_count(said):
    assert option(said.format("B")) is None
    assert read_answer(said.format(60), "integer").found is None


@pytest.mark.parametrize(
    "text",
    ["The graph suggests that the answer is B.", "参考答案:B", "The given information suggests the answer is B."],
)
def test_what_a_figure_says_is_not_reported(text):
    assert option(text) == "B"


GOES_THROUGH = (
    "根据题目描述,新农村建设后农村的经济收入增加了一倍,实现翻番,"
    "我们逐一分析每个选项的内容,看看是否符合题目要求。\n选项A. 种植收入减少\n"
    "因此,选项A是正确的。",
    "Let us check each option in turn.\nOption A: the lamp is red. A is correct because the lamp on the left is red.",
)


@pytest.mark.parametrize("text", GOES_THROUGH)
def test_praise_of_one_option_in_a_text_that_breaks_off_at_the_next_does_not_count(text):
    assert option(text) == "A"
    label = "选项" if text is GOES_THROUGH[0] else "Option "
    assert (
        option(f"{text}\n{label}B. 根据这个饼图,可以得出新农村建设后农村的经济收入 as we can see here in the") is None
    )
    assert option(f"{text}\n{label}B. It is green, which is wrong.") == "A"


COLOURS = {"A": "red", "B": "green", "C": "blue"}


@pytest.mark.parametrize(
    "text",
    [
        *("If the lamp were on, it would be green.", "It would be green if the lamp were on."),
        "Had the lamp been on, it would have been green.",
    ],
)
def test_what_would_be_answers_only_a_question_about_it(text):
    assert read_answer(text, "option", COLOURS, "What colour is the lamp?").found is None
    assert read_answer(text, "option", COLOURS, "What colour would it be if it were on?").found == "B"


def test_what_would_be_in_chinese_answers_only_a_question_about_it():
    colours = {"A": "红色", "B": "绿色"}
    assert read_answer("如果灯亮着,就会是绿色。", "option", colours, "灯是什么颜色?").found is None
    assert read_answer("如果灯亮着,就会是绿色。", "option", colours, "如果灯亮着,是什么颜色?").found == "B"


def test_a_number_that_would_be_answers_only_a_question_about_it():
    text = "If the lamp were on, there would be 4 lights."
    assert read_answer(text, "integer", asked="How many lights are there?").found is None
    assert read_answer(text, "integer", asked="How many lights would there be if the lamp were on?").found == "4"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Yes, if the lamp is on.",
            "Yes, but only in part.",
            "Yes, but only if it is on.",
            "Yes, partly.",
            "Yes, in part.",
        ),
        *(
            "No, unless it is off.",
            "Yes, when the lamp is on.",
            "The answer is yes, if the lamp is on.",
            "Yes - if it is on.",
        ),
        *("Answer: Yes, as long as it is on.", "是的,如果灯亮着。", "是的,但只是部分。", "Yes, to some extent."),
    ],
)
def test_yes_with_a_condition_is_neither_yes_nor_no(text):
    assert read_answer(text, "yes_no", asked="Is it red?").found is None
    assert read_answer(text, "option", {"A": "Yes", "B": "No"}, "Is it red?").found is None


@pytest.mark.parametrize(
    "text",
    [
        *("Yes, but only one.", "Yes, if you look closely, it is red.", "Yes, but it is small."),
        "Yes. If it were off, it would be black.",
    ],
)
def test_yes_with_a_remark_is_yes(text):
    assert read_answer(text, "yes_no", asked="Is it red?").found == "Yes"


def test_a_condition_may_be_asked_for():
    assert read_answer("Yes, if the lamp is on.", "yes_no", asked="Is it red if the lamp is on?").found == "Yes"
    assert read_answer("Yes, when it is 5, it is 6.", "yes_no", asked="When the input is 5, is it 6?").found == "Yes"
