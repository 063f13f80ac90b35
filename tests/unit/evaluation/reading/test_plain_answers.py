"""Answers that are plain to a person, and numbers and letters that only look like one."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
LENGTHS = {"A": "2πcm", "B": "3πcm", "C": "5πcm"}
AREAS = {"A": "$12 \\mathrm{~cm}^{2}$", "B": "$15 \\mathrm{~cm}^{2}$", "C": "$36 \\mathrm{~cm}^{2}$"}
ROOTS = {"A": "$\\sqrt{2}$", "B": "2", "C": "$4$", "D": "$\\frac{\\sqrt{3}}{2}$"}
BOTH = {"A": "$\\text{A only}$", "B": "$\\text{B only}$", "C": "both A and B"}
CASH = {"A": "$1,000", "B": "-$1,000", "C": "$2,000"}
KINDS = {"A": "a polynomial", "B": "a logarithmic function", "C": "an exponential function"}
IMAGES = {"A": "", "B": "", "C": ""}
YES = {"A": "yes", "B": "no"}


@pytest.mark.parametrize(
    ("options", "text", "found"),
    [
        *[(COLOURS, text, "B") for text in ("So B.", "The lamp is on. So B.", "Thus, B.", "Hence (B).", "Therefore B")],
        *[(COLOURS, text, "B") for text in ("It is on. Option B.", "Answer B.", "Letter B", "Final: B", "=> B", "B!")],
        *[(COLOURS, text, "B") for text in ("B is the answer.", "It must be B.", "That leaves B.", "Selected: B")],
        (COLOURS, "A and B are wrong, C is wrong, so D.", "D"),
        (COLOURS, "By elimination, D.", "D"),
        (COLOURS, "All could be real. If I must choose, I would lean towards:\n(C) blue, as it is plain.", "C"),
        (COLOURS, "The only option that fits this is:\n(D) yellow\nIt has a sun.", "D"),
        *[(COLOURS, text, "B") for text in ("B选项正确", "A选项错误,B选项正确。", "选项B是正确的。")],
        *[(COLOURS, text, "C") for text in ("正确的是C", "所以正确的是C选项。")],
        (COLOURS, "A选项正确,B选项正确。", None),
        (LENGTHS, "The perimeter of the cap is 5π cm.", "C"),
        ({"A": "（150，160）", "B": "（200，270）"}, "正确答案是（200，270）。", "B"),  # noqa: RUF001
        (AREAS, "The answer is \\boxed{15}.", "B"),
        (AREAS, "36 Cm^2", "C"),
        (AREAS, "So the area is $\\boxed{12 \\text{ cm}^2}$.", "A"),
        (BOTH, "\\(\\boxed{\\text{B only}}\\)", "B"),
        (CASH, "Answer: (B) -$1,000", "B"),
        (IMAGES, "Point A is the correct corresponding point (B).", "B"),
    ],
)
def test_an_option_that_is_plain_to_a_person_is_read(options, text, found):
    assert read_answer(text, "option", options).found == found


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (COLOURS, "I doubt that it is B."),
        (COLOURS, "The correct option is B. The lamp shines, so the answer is red."),
        (COLOURS, "The equation is \\boxed{A = C}"),
        (IMAGES, "The second image is most similar. The third image (Choice B) shows a dog, which is quite different."),
        (ROOTS, "\\boxed{\\frac{2+\\sqrt{2}}{3}}"),
        (ROOTS, "\\boxed{4\\pi + \\frac{8}{\\pi}}"),
        (ROOTS, "The answer is: \\frac{3\\sqrt{3}}{2}"),
        (ROOTS, "$\\sqrt{3}$"),
        (AREAS, "\\boxed{\\text{(A) } 15 \\mathrm{~cm}^2}"),
        ({"A": "$150^{\\circ}$", "B": "$180^{\\circ}$"}, "The sum is \\( \\boxed{180^\\circ - \\alpha} \\)."),
    ],
)
def test_a_denied_letter_or_a_part_of_a_formula_is_no_option(options, text):
    assert read_answer(text, "option", options).found is None


def test_an_option_is_read_from_a_first_sentence_that_repeats_the_question():
    asked = "What is the green curve?"
    assert read_answer("The green curve is a polynomial. Its line is straight.", "option", KINDS, asked).found == "A"
    text = "The green curve is a polynomial. No, wait. It grows fast, so it is an exponential function. The end."
    assert read_answer(text, "option", KINDS, asked).found is None
    assert read_answer("The green curve is a polynomial. It is hot.", "option", KINDS, "Who is it?").found is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The answer is $2\\frac{1}{2}$.", "2.5"),
        ("\\boxed{11\\frac{1}{2}}", "11.5"),
        ("\\boxed{2 1/2}", "2.5"),
        ("\\boxed{150 \\, cm^{2}}", "150"),
        ("The answer is 22 - 2 x 0 + 1 = 21.", "21"),
        ("Therefore, the share of people, rounded to an integer, is 42%.", "42"),
        ("The highest number of answers was 87, which occurred at 84% of sales.", "87"),
        ("Therefore, the final value of y when x = -2.5 is 14.", "14"),
        ("The nail is **3 inches long**. The marks are 0, 2, 5 and 6.\nThe nail is about 3 inches long.", "3"),
    ],
)
def test_a_number_that_is_plain_to_a_person_is_read(text, found):
    assert read_answer(text, "integer").found == found


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{4-2\\pi}",
        "\\boxed{44+10\\sqrt{3}}",
        "\\boxed{3^{2014} + 2^{2014} - 2}",
        "\\boxed{\\frac{2}{a+b}}",
        "$68\\pi - 75$",
        "x = 3 or x = 4",
        "So, the final answer is Total objects - 15.",
        "Therefore, the result is the number of balls minus 10.",
        "Look at all the values in the chart and identify the smallest one.",
        "I am not sure, maybe 5.",
        "The maximum is located at x = 1. To find the final value, substitute x = 1 into it and obtain y = 2.",
        "$ \\frac { a } { b } = 0.067 $\n\nTherefore, the relative increase in the atmosphere is $0.0",
        "首先,我们需要计算通过灯的电流.根据欧姆定律,已知电压是20V,电阻是500,可以计算出电流I=20V/500=0.0",
    ],
)
def test_a_formula_an_operand_or_a_broken_text_gives_no_number(text):
    assert read_answer(text, "integer").found is None


def test_a_direct_number_stands_if_the_rest_agrees():
    asked = "What is the maximum value of this function?"
    text = "The maximum value of the function is 3.\n\n1. The vertex is at (1, 3).\n2. In this case, the maximum is 3."
    assert read_answer(text, "integer", asked=asked).found == "3"
    assert read_answer(text.replace("maximum is 3", "maximum is 7"), "integer", asked=asked).found is None


def test_numbers_after_a_refusal_in_the_first_sentence_conclude_nothing():
    text = "It is impossible to determine the arc PQ.\nPQ = 45\nQR = 49\nRS = 80\nST = 90"
    assert read_answer(text, "option", {"A": "45", "B": "49", "C": "90"}).found is None


@pytest.mark.parametrize("text", ["Not yes.", "The answer is not yes.", "No, I cannot tell."])
def test_a_denied_word_is_neither_yes_nor_no(text):
    assert read_answer(text, "yes_no").found is None


def test_a_question_that_is_only_repeated_is_not_answered():
    asked = "Is Deep Salmon the roughest?"
    assert read_answer("Is Deep Salmon the roughest?", "option", YES, asked).found is None
    assert read_answer("Deep Salmon is the roughest.", "option", YES, asked).found == "A"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *[(text, "B") for text in ("✔️ B) green", "[x] B", "[ ] A\n[x] B\n[ ] C", "\\checkmark B", "B \\checkmark")],
        *[(text, None) for text in ("✓ B is wrong", "Not ✓ B", "A is ticked ✓, but B fits.", "✓ A\n✓ B")],
    ],
)
def test_a_tick_chooses_the_letter_next_to_it_unless_it_is_denied(text, found):
    assert read_answer(text, "option", IMAGES).found == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *[(text, "A") for text in ("It is likely true.", "It's a true statement.", "说法正确。")],
        *[
            (text, "B")
            for text in (
                "That's false.",
                "The statement isn't true.",
                "The statement is untrue.",
                "说法错误。",
                "这个说法不正确。",
            )
        ],
        *[
            (text, None)
            for text in ("I cannot say whether the statement is true.", "It is hard to tell if it is true.")
        ],
        *[(text, None) for text in ("The statement is true only if it is on.", "无法确定这个陈述是对还是错。")],
    ],
)
def test_true_and_false_are_read_unless_they_are_in_doubt(text, found):
    assert read_answer(text, "option", {"A": "True", "B": "False"}).found == found


SECTIONS = (
    "<CONCLUSION> {} </CONCLUSION>",
    "<SUMMARY> I will look. </SUMMARY>\n<REASONING> A is red. The answer is A. </REASONING>\n\n"
    "<CONCLUSION>\n{}\n</CONCLUSION>",
    "<REASONING>它是A。</REASONING><conclusion>答案是{}。</conclusion>",
)


@pytest.mark.parametrize("sections", SECTIONS)
def test_the_section_that_concludes_is_read(sections):
    colours = {"A": "red", "B": "green"}
    assert read_answer(sections.format("B"), "option", colours).found == "B"
    assert read_answer(sections.format("green"), "option", colours).found == "B"
    assert read_answer(sections.format("4"), "integer").found == "4"
    assert read_answer(sections.format("Yes"), "yes_no").found == "Yes"
    assert read_answer(sections.format("A or B"), "option", colours).found is None


def test_a_section_that_concludes_in_a_sentence_is_read():
    colours = {"A": "red", "B": "green"}
    assert read_answer("<CONCLUSION> The lamp is green. </CONCLUSION>", "option", colours).found == "B"
    assert read_answer("<CONCLUSION> There are 4 cups. </CONCLUSION>", "integer").found == "4"
    unknown = "<REASONING> The answer is A. </REASONING><CONCLUSION> It cannot be determined. </CONCLUSION>"
    assert read_answer(unknown, "option", colours).found is None


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("User:\n\n\nIs there a floor in this image?\nAssistant: Yes", "yes_no", "Yes"),
        ("Assistant: Yes", "yes_no", "Yes"),
        ("ASSISTANT: The answer is B.", "option", "B"),
        ("User: How many?\nAssistant: 4", "integer", "4"),
        ("User: Is it red?\nAssistant: Yes\nUser: Is it blue?\nAssistant: No", "yes_no", "Yes"),
        ("助手:B", "option", "B"),
    ],
)
def test_the_name_of_the_speaker_is_not_part_of_the_answer(text, kind, found):
    assert read_answer(text, kind, {"A": "", "B": ""} if kind == "option" else {}).found == found


REFLECTION = "Which figure is a reflection of the object?"


@pytest.mark.parametrize(
    ("text", "asked", "found"),
    [
        ("Based on this, **Figure B** is the reflection of the object. It has the same symmetry.", REFLECTION, "B"),
        ("Therefore, figure B completes the pattern.", "", "B"),
        ("因此,图B是物体的反射。", "哪个图是物体的反射?", "B"),
        ("Therefore, figure B is not a reflection of the object.", REFLECTION, None),
        ("Figure A or figure B is a reflection of the object.", REFLECTION, None),
        ("Therefore, the reflection of the first image (a spoon) is on the right.", REFLECTION, None),
    ],
)
def test_a_figure_is_chosen_where_the_options_are_figures(text, asked, found):
    for options in ({"A": "", "B": ""}, {"A": "Figure A", "B": "Figure B"}):
        assert read_answer(text, "option", options, asked).found == found
    assert read_answer(text, "option", {"A": "(b)", "B": "(a)"}, asked).found is None
    assert read_answer("Figure B is rotated.", "option", {"A": "", "B": ""}, REFLECTION).found is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("因此共有四种不同的穿法。\n\n[答案]: B", "B"),
        ("[答案]\uff1aC", "C"),
        ("【答案】D", "D"),
        ("【正确答案】\uff1aA", "A"),
        ("[答案]: A 或 B", None),
        ("参考[答案]在书中。", None),
        ("[答案]: B\n[答案]: C", None),
    ],
)
def test_an_answer_after_its_heading_in_brackets_is_read(text, found):
    assert read_answer(text, "option", dict.fromkeys("ABCD", ""), "").found == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Answer: A) He read it with care. B) He skimmed it. C) All answers are incorrect", None),
        ("The answer is A. one thing B. another thing C. a third", None),
        ("Answer: A) He read it with care.\nB) He skimmed it.\nC) All answers are incorrect", None),
        ("Answer: A) He read it with care.", "A"),
        ("Answer: A) He read it with care, which text (B) does not say.", "A"),
        ("Answer: B) He skimmed it.", "B"),
    ],
)
def test_a_list_of_all_options_in_other_words_is_no_choice(text, found):
    options = {"A": "Option A in the image", "B": "Option B in the image", "C": "None of them"}
    assert read_answer(text, "option", options, "").found == found


LETTERS = dict.fromkeys("ABCD", "")
LENGTH = "解: 由题意得 $x = 3 \\times 4 = 12$, 再由勾股定理得到 $A B$ 的长度等于 $y = 15$, 所以 $z = 12 + 15 = 27$。"
JUDGED = "让我们逐一检查每个选项:\nA. 函数 $y=2x$ 经过原点。\nB. 函数 $y=x+1$ 不经过原点。"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("一共有 $12+18=\\boxed{30}$\n\n最终答案: C", "C"),
        ("一共有 $12+18=\\boxed{30}$\n\n最终答案: C. 40", None),
        ("\\boxed{B}\n\n最终答案: C", None),
        (f"{LENGTH}\n故选D", "D"),
        (f"{LENGTH}\n故选AD", None),
        (f"{JUDGED}\n所以正确答案是:\n\n\\[\n\\textbf{{A. }} y=2x\n\\]", "A"),
        (f"{JUDGED}\n所以正确答案是:\n\n\\[\n\\text{{A}}\n\\]", "A"),
        ("最终答案是:\n\\[\n\\text{A} \\quad \\text{x}\n\\]\n\\[\n\\text{B} \\quad \\text{y}\n\\]", None),
        ("所以正确答案是:\n\n\\[\n\\text{C} \\quad \\boxed{C}\n\\]", "C"),
    ],
)
def test_a_letter_after_a_calculation_or_in_a_formula_of_its_own_is_read(text, expected):
    assert read_answer(text, "option", LETTERS).found == expected


def test_the_value_in_a_box_still_contradicts_a_letter_whose_words_are_known():
    text = "The sum is \\boxed{30}.\nFinal answer: C"
    assert read_answer(text, "option", {"A": "10", "B": "30", "C": "40"}).found is None


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("The colours of the row are not repeated. Therefore, the missing colour is:\n\n(B) green", "B"),
        ("Therefore, the colour that does not fit is:\n\n(B) green", None),
    ],
)
def test_only_the_sentence_before_a_colon_denies_what_follows(end, expected):
    text = f"Look at the row of colours.\nThe options are:\n(A) red\n(B) green\n(C) blue\n\n{end}"
    options = {"A": "red", "B": "green", "C": "blue"}
    assert read_answer(text, "option", options, "Which colour is missing?").found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Yesyesyesyes", "Yes"), ("Yesyesyesye", "Yes"), ("nonono", "No"), ("yesnoyesno", None), ("Nono", None)],
)
def test_one_word_in_a_loop_is_read(text, expected):
    assert read_answer(text, "yes_no", asked="Is it red?").found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The names of the streets are not visible, but the cars can be counted.", "No"),
        ("The names of the streets are not visible.", "No"),
        ("The names of the streets are visible.", "Yes"),
        ("The names of the streets are not visible, but some are visible.", None),
        ("The names of the streets are not visible, but those of the shops are.", None),
        ("The names of the streets are visible, but only at night.", None),
        ("I cannot tell whether the names of the streets are visible.", None),
    ],
)
def test_not_visible_answers_a_question_about_it(text, expected):
    assert read_answer(text, "yes_no", asked="Are the names of the streets visible?").found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("There are s\u0131x cups.", "6"), ("\u017feven", "7"), ("5 m\u0131ll\u0131on", "5000000"), ("S\u0130X", "6")],
)
def test_letters_that_python_takes_for_others_are_read_as_these(text, expected):
    assert read_answer(text, "integer").found == expected
