"""The question tells which numbers are only repeated, and what a repeated question says."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.evaluation.reading.texts.question_words import QuestionWords, repeats_question, says_whether

YES_NO = {"A": "Yes", "B": "No"}


@pytest.mark.parametrize(
    ("asked", "text", "found"),
    [
        ("What is the value of y at x = -2.5?", "The value of y at x = -2.5 is 0.", "0"),
        ("What is the age gap between these two people?", "The gap between the two people is 10 years.", "10"),
        ("What is the age gap between these two people?", "There is a 22-year gap between the two people.", "22"),
        ("What is the age gap between these two people?", "The two people are of the same age.", None),
        ("How many bars are higher than 2?", "There are two bars higher than 2.", "2"),
        ("How many bars are higher than 30?", "There are 4 bars higher than 30.", "4"),
        ("What changed between 2013 and 2014?", "The change between 2013 and 2014 was an increase of 12.", "12"),
        (
            "How many cups are on the table?",
            "There are 3 cups on the table. One is red. They were made after 1945.",
            "3",
        ),
        ("How many cups are left?", "There are no cups left.", "0"),
        ("How many cups are left?", "There are no plates, but there are 3 spoons.", None),
        ("Which year had the most rain?", "In 2012, the rain was 88 cm.", "2012"),
        ("When does f start to fall?", "The function starts to fall at x = 3.", "3"),
        ("What is the ratio of red to blue?", "The ratio of red to blue is 3:1.", None),
        ("How many are left?", "There are 4 red balls and 4 blue balls left.", None),
        ("What is the voltage?", "Therefore, the voltage is 6.5 and the current is 0.5.", None),
        ("How old are they?", "The gap is 10 years, with the younger one being 10 and the older one being 20.", "10"),
        ("What is the area?", "The area is 4π/3", None),
        ("A taxi drove in May and June. How far?", "The answer is:\nMay: 1,000 miles\nJune: 1,200 miles", None),
    ],
)
def test_numbers_of_the_question_are_not_answers(asked, text, found):
    assert read_answer(text, "integer", asked=asked).found == found


@pytest.mark.parametrize("text", ["150", "150.", "150 km", "$150", " 150\n", "**150**", "The largest is 150."])
def test_a_number_alone_or_asserted_is_the_answer_even_if_the_question_names_it(text):
    assert read_answer(text, "integer", asked="What is the largest of 100, 120 and 150 km?").found == "150"


@pytest.mark.parametrize(
    ("asked", "text", "found"),
    [
        ("Does Aqua have the smallest area?", "Based on the image, Aqua has the smallest area.", "Yes"),
        ("Is the pizza cut in half?", "The pizza is not cut in half.", "No"),
        ("According to the map, is Ohio the farthest north?", "So, Ohio is not the farthest north of them.", "No"),
        ("Are there fewer red jets than blue ships?", "There are fewer red jets than blue ships.", "Yes"),
        ("Is Web Green greater than Yellow?", "Yellow is greater than Web Green.", None),
        ("Is the left circle larger than the right circle?", "The left circle is as large as the right circle.", None),
        ("Is this an odd function?", "Odd functions are functions with a certain symmetry.", None),
        ("Is this function continuous?", "For a function to be continuous, limits must exist.", None),
        ("Does Aqua have the smallest area?", "I cannot say whether Aqua has the smallest area.", None),
        ("Does Aqua have the smallest area?", "If Aqua has the smallest area, it is last.", None),
        ("Is f(3) > 0?", "We get f(3) = 0.5 * 3 - 2 = 0.", None),
        ("Is it red or blue?", "It is red or blue.", None),
    ],
)
def test_a_repeated_question_says_yes_or_no(asked, text, found):
    assert read_answer(text, "yes_no", asked=asked).found == found
    letter = {"Yes": "A", "No": "B", None: None}[found]
    assert read_answer(text, "option", YES_NO, asked).found == letter


def test_a_word_outweighs_a_repeated_question():
    asked = "Does Aqua have the smallest area?"
    assert read_answer("No. Aqua has the smallest area only at first.", "yes_no", asked=asked).found == "No"
    assert (
        says_whether("Aqua has the smallest area. Aqua does not have the smallest area.", QuestionWords(asked)) is None
    )


def test_the_hint_of_a_prompt_is_not_part_of_the_question():
    prompt = "Hint: Please give the final value, e.g., 1, 2, 3, at the end.\nQuestion: How many cups?"
    assert read_answer("I see 3 cups.", "integer", asked=prompt).found == "3"


def test_a_sentence_repeats_a_question_in_the_other_number_too():
    assert repeats_question("There are 4 cherries.", QuestionWords("How many cherry are there?"))
    assert repeats_question("The city is 4.", QuestionWords("Which cities is it?"))
    assert not repeats_question("There are 4 plums.", QuestionWords("How many cherry are there?"))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Aqua hardly has the smallest area.",
            "Aqua almost has the smallest area.",
            "Aqua has the second smallest area.",
        ),
        *(
            "Only Blue and Aqua have the smallest area.",
            "Aqua has the smallest area except for Blue.",
            "Aqua used to have the smallest area.",
        ),
        *("People say Aqua has the smallest area.", "Aqua has the smallest area, but only on the left."),
        *(
            "Aqua appears to have the smallest area. In fact both are the same.",
            "Please answer yes or no.",
            "Maybe yes.",
        ),
        *("I would not say yes.", "Some would say yes.", "The answer should be a yes or a no.", "No. 3 is smaller."),
    ],
)
def test_a_qualified_statement_says_neither_yes_nor_no(text):
    assert read_answer(text, "yes_no", asked="Does Aqua have the smallest area?").found is None


def test_what_appears_so_and_is_not_taken_back_says_yes():
    asked = "Are the colors on tiles A and B the same?"
    assert read_answer("The colors on tiles A and B appear to be the same.", "yes_no", asked=asked).found == "Yes"
