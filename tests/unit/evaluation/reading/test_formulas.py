"""A letter or a number that is part of a formula is not chosen; a label before a formula is."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
SHAPES = {"A": "", "B": "", "C": "", "D": ""}
LETTERS = {"A": "A", "B": "B", "C": "C", "D": "D"}
COUNTS = {"A": "2", "B": "3", "C": "4", "D": "12"}
HALVES = {"A": "1/3", "B": "1/2", "C": "3/4", "D": "1+2"}
LINES = {"A": "x = 2", "B": "x = 3", "C": "x = 4"}
ANGLES = {"A": "30°", "B": "45°", "C": "60°"}
SHARES = {"A": "$12 \\%$", "B": "$25 \\%$"}
ORDERS = {"A": "C > B > A", "B": "A > B > C", "C": "B-C-A", "D": "A, B, C"}
SAID = (
    "The answer is {}.",
    "Answer: {}",
    "\\boxed{{{}}}",
    "The correct answer is {}. The rest follows.",
    "So the result is {}.",
    "{}",
)


def option(text, options=SHAPES):
    return read_answer(text, "option", options).found


@pytest.mark.parametrize(
    "formula",
    [
        *("B+C", "B + C", "B-C", "B - C", "B\u2212C", "B*C", "B \u00d7 C", "B · C", "B ÷ C", "B/C", "B / 2", "(B)/2"),
        *(
            "B^2",
            "B^{2}",
            "B²",
            "B_1",
            "B = C",
            "B=C=D",
            "B > C",
            "B < C",
            "B ≥ C",
            "B ± 1",
            "-B",
            "2B",
            "3(B)",
            "f(B)",
        ),
        *("P(B)", "sin B", "sin(B)", "∠B", "|B|", "√B", "$B+C$", "**B+C**", "**B** + **C**", "(B)+(C)", "(B) + (C)"),
        *(
            "\\frac{B}{2}",
            "\\frac{B}{C}",
            "\\sqrt{B}",
            "A \\cap B",
            "A \u222a B",
            "B \\times C",
            "B\\pi",
            "B π r",
            "B°",
            "B%",
        ),
        *(
            "B(x)",
            "B(3, 4)",
            "B:C",
            "B : C",
            "B; C",
            "B, C",
            "B or C",
            "B → C",
            "B -> C",
            "B \\to C",
            "B-A-C-D",
            "B A C D",
        ),
        *("B plus C", "B minus C", "B times C", "B divided by C", "AB", "AB + BC"),
    ],
)
def test_a_letter_of_a_formula_is_no_option(formula):
    for options in (COLOURS, SHAPES, LETTERS):
        assert [option(said.format(formula), options) for said in SAID] == [None] * len(SAID)


@pytest.mark.parametrize(
    "formula",
    [
        *(
            "a/(2)",
            "f(2)",
            "x^2",
            "log_2",
            "2x",
            "2ab",
            "2(x+1)",
            "x - 2",
            "2 - a",
            "(2)(3)",
            "x > 2",
            "x ≤ 2",
            "(1, 2)",
        ),
        *(
            "2π",
            "2 π",
            "2 pi",
            "2\\pi r",
            "√(2)",
            "\\sqrt 2",
            "2 \\sqrt 5",
            "|2|",
            "2/x",
            "\\frac{2}{x}",
            "\\frac{x}{2}",
        ),
        *(
            "sin(2)",
            "2 sin x",
            "2 times x",
            "2 plus k",
            "k minus 2",
            "x divided by 2",
            "±2",
            "2·x",
            "2CD",
            "2 AB",
            "2^n",
        ),
    ],
)
def test_a_number_of_a_formula_is_no_option(formula):
    assert [option(said.format(formula), COUNTS) for said in SAID[:-1]] == [None] * (len(SAID) - 1)


@pytest.mark.parametrize(
    ("options", "label"),
    [
        *[
            (SHAPES, label)
            for label in ("B - the red one", "B) 12", "B. 1+2", "B: x = 3", "B, because it is red", "B!")
        ],
        *[(SHAPES, label) for label in ("(B) -3", "(B) √3", "(B) x^2 + 1", "B: 2x+1", "(B) ∠ACD", "B (the left one)")],
        *[(SHAPES, label) for label in ("B, as 2 + 1 = 3", "B because A + C > D", "B（绿色）", "B; it is on")],  # noqa: RUF001
        *[(COUNTS, label) for label in ("B - 3", "B = 3", "B=3", "B: 3", "B (3)", "(B) 3", "3 (B)", "B) 3", "B. (3)")],
        *[(COLOURS, label) for label in ("B - green", "B – green", "B → green", "B / green", "**B** - green")],  # noqa: RUF001
        *[(HALVES, label) for label in ("(B) 1/2", "(B) $\\frac{1}{2}$")],
        *[(LINES, label) for label in ("B: x = 3", "B) x = 3")],
        (SHARES, "B - 25%"),
        (ANGLES, "B(45°)"),
        (ORDERS, "A > B > C"),
    ],
)
def test_a_label_before_a_formula_is_chosen(options, label):
    assert option(f"The answer is {label}.", options) == "B"
    assert option(f"Answer: {label}", options) == "B"


def test_a_formula_that_is_an_option_is_chosen():
    assert option("Answer: B-C-A", ORDERS) == "C"
    assert option("The answer is A, B, C.", ORDERS) == "D"
    assert option("\\boxed{P S}", {"A": "$P Q$", "B": "$P S$"}) == "B"
    assert option("(B) $(C, A, B)$", {"A": "$(A, B, C)$", "B": "$(C, A, B)$"}) == "B"
    assert option("The answer is (C) D.", {"A": "B", "B": "C", "C": "D"}) == "C"


def test_a_label_repeated_in_a_row_is_not_chosen():
    assert option("A, A, A, A, A", LETTERS) is None


def test_words_count_on_both_sides_of_an_equation():
    slopes = {"A": "larger", "B": "equal", "C": "smaller"}
    assert option("The slope at t=2 is larger than at t=5.", slopes) == "A"


def test_a_choice_that_something_corresponds_to_is_chosen():
    assert option("The length is 3.2, which corresponds to choice (B).") == "B"
    assert option("It does not correspond to option (B).") is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "The answer is 3x.",
            "The answer is 3n.",
            "The answer is x > 3.",
            "The answer is > 3.",
            "The answer is 3 more than 4.",
        ),
        *(
            "The answer is half of 8.",
            "The answer is twice 4.",
            "The answer is 50% of 8.",
            "The answer is x = 3, y = 4.",
        ),
        *(
            "\\boxed{(x-2)^2 + (y-1)^2 = 9}",
            "(x-2)² + (y-1)² = 9",
            "x^2 + y^2 = 25",
            "3; 5",
            "The answer is 3 boys and 4 girls.",
        ),
        *(
            "答案是3个红杯和4个蓝杯。",
            "大于7。",
            "至少7个。",
            "答案不是7。",
            "It isn't 7.",
            "There aren't 7 cups.",
            "The answer can't be 5.",
        ),
    ],
)
def test_a_part_of_a_formula_or_a_bound_is_no_number(text):
    assert read_answer(text, "integer").found is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The answer is m+n = 12.", "12"),
        ("x^2 = 9, so x = 3.", "3"),
        ("The answer is 5m.", "5"),
        ("The answer is <5>.", "5"),
    ],
)
def test_the_value_of_a_formula_is_a_number(text, found):
    assert read_answer(text, "integer").found == found


WITH_LETTERS = (
    *(
        r"\frac{2f}{d}",
        r"\frac{6}{m l}",
        "2f/d",
        "6/(ml)",
        r"3\sqrt{x}",
        "2^n",
        "2^{n+1}",
        "5k + 1",
        "1 + k",
        "2x",
        "3xy",
    ),
    *("5 x", "2(a+b)", r"\frac{1}{2}mv^2", r"3\alpha", "3θ", r"4 \lambda", r"2\sin x", r"\frac{n(n+1)}{2}", "3 - x"),
    *("2v_0", "2 R", "6/m", "1/x^2", r"\frac{1}{x}", r"2 \cdot x", r"3 \times n", r"\frac{3}{4}a", "7y^2", "3 x y"),
)
WITH_UNITS = (
    *("5 cm", "5cm", "5 m", r"5\,\text{m/s}", "5 m/s^2", r"5^\circ", r"5\%", "5 V", "5 km/h", "5 g/cm^3", "5 mol/L"),
    *("5 Ω", "5 μm", "5μm", "5 apples", "5 (cups)", r"5\,\frac{\text{m}}{\text{s}}", "5c{m}^{2}", "5米", "5 H", "5 eV"),
)
NUMBER_SAID = (
    *(r"\[ \boxed{%s} \]", "The answer is %s.", r"The answer is \(%s\).", "Therefore, the value is %s.", "So y = %s."),
    *("%s", "**%s**", "Answer: %s", "答案是%s。", "<answer>%s</answer>", "所以面积为%s。"),
)


@pytest.mark.parametrize("formula", WITH_LETTERS)
def test_a_number_in_a_formula_with_letters_is_no_value(formula):
    assert [read_answer(said % formula, "float").found for said in NUMBER_SAID] == [None] * len(NUMBER_SAID)


@pytest.mark.parametrize("value", WITH_UNITS)
def test_a_number_before_a_unit_is_a_value(value):
    assert [read_answer(said % value, "float").found for said in NUMBER_SAID] == ["5"] * len(NUMBER_SAID)


def test_a_mass_times_g_in_a_box_is_no_number_of_milligrams():
    assert read_answer(r"\boxed{2mg}", "float").found is None
    assert read_answer(r"\boxed{2 \text{ mg}}", "float").found == "2"


def test_a_number_after_a_formula_with_letters_is_a_value():
    assert read_answer("The slope of 3x is 3.", "integer").found == "3"
    assert read_answer("For the 3 lenses, the deflection is 2f/d.", "float").found is None
    assert read_answer(r"So the answer is $136 \pmod{1000} \rightarrow \boxed{136}$", "integer").found == "136"


@pytest.mark.parametrize("point", ["B'", "B\u2032", "B''", r"B^\prime", r"B^{\prime}", "B\u2019", "(B')"])
def test_a_letter_with_a_prime_is_another_point(point):
    for said in ("The answer is {}.", "Answer: {}", "{}", "\\boxed{{{}}}", "The correct option is {}.", "答案是{}。"):
        assert option(said.format(point)) is None
        assert option(said.format(point), COLOURS) is None
    points = {"A": "A'", "B": "A", "C": "B'", "D": "B"}
    assert option(f"The answer is {point}.", points) == (None if point == "B''" else "C")


@pytest.mark.parametrize(
    "text",
    ["The answer is 'B'.", "Answer: ‘B’", "'The answer is B'", "I'd say 'the answer is B'.", "'B'"],  # noqa: RUF001
)
def test_a_letter_in_quotes_has_no_prime(text):
    assert option(text) == "B"


@pytest.mark.parametrize(
    "text",
    [
        "$\\angle BCD=70\\degree$\n\n解析:\n因为CD是中线,\n所以$\\angle BCD=\\frac{1}{2}\\angle ACB=45\\degree$。",
        "x = 70\n\nExplanation: both parts are equal.\nTherefore x = 90/2 = 45.",
    ],
)
def test_two_values_for_the_same_left_side_are_no_answer(text):
    assert read_answer(text, "float").found is None


def test_values_for_two_left_sides_may_differ():
    assert read_answer("y = 70\n\nBoth parts are equal.\nTherefore x = 90/2 = 45.", "float").found == "45"
