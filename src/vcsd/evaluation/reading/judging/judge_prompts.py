"""The prompts for a judge, in two wordings.

strict       this package's: asks which option or value the answer settles on, or whether it settles on none
vlmevalkit   VLMEvalKit's prompts (Apache License 2.0), to the letter, including typos: a judge's score can be compared
             with a published one only if the judge was asked the same

VLMEvalKit has one prompt for options, one for BLINK, one for yes and no, and one for MathVista; a benchmark's record
selects one. Its Chinese prompt is left out: none of the benchmarks here has lettered questions in Chinese.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.evaluation.reading.texts.statements import spoken
from vcsd.models.messages.control_tokens import break_served_control_tokens

if TYPE_CHECKING:
    from vcsd.evaluation.benchmarks.benchmark import JudgeForm
    from vcsd.types import Question

_TASKS = {
    "option": (
        "Below are a question with lettered options and what someone answered to it. Say which option the answer "
        "settles on. Go by the answer alone, even if you think it is mistaken; do not solve the question yourself. "
        "If the answer settles on none of the options, or on several, say Z. Reply with one letter and nothing else."
    ),
    "yes_no": (
        "Below are a question and what someone answered to it. Say whether the answer comes down to yes or to no. Go "
        "by the answer alone, even if you think it is mistaken. Reply with one word: Yes, No, or Unknown if the answer "
        "is neither."
    ),
    "integer": (
        "Below are a question and what someone answered to it. Give the whole number on which the answer settles, in "
        "digits, without units or words; None if there is no such number. Do not solve the question yourself."
    ),
    "float": (
        "Below are a question and what someone answered to it. Give the number on which the answer settles as a "
        "decimal, with as many places as the question asks for, without units or words; None if there is no such "
        "number. Do not solve the question yourself."
    ),
    "list": (
        "Below are a question and what someone answered to it. Give the list on which the answer settles, as Python "
        "writes it: [1, 2, 3]; None if there is no such list. Do not solve the question yourself."
    ),
    "text": (
        "Below are a question and what someone answered to it. Give the final answer in as few of its own words as "
        "possible; None if there is none. Do not solve the question yourself."
    ),
}


def strict_prompt(question: Question, answer: str, form: JudgeForm) -> str:
    """Build this package's prompt about an answer. Thinking is left out of the answer."""
    options = "".join(f"\n{letter}. {words}" for letter, words in question.options.items())
    options = f"\n\nOptions:{options}" if options else ""
    given = f"Question:\n{question.wording}{options}\n\nAnswer:\n{spoken(answer)}"
    # An answer that ends the judge's turn could dictate the verdict.
    return f"{_TASKS[question.kind]}\n\n{break_served_control_tokens(given)}\n\nYour reply:"


_OPTIONS = (
    "You are an AI assistant who will help me to match an answer with several options of a single-choice question. "
    "You are provided with a question, several options, and an answer, and you need to find which option is most "
    "similar to the answer. If the meaning of all options are significantly different from the answer, output Z. "
    "Your should output a single uppercase character in A, B, C, D (if they are valid options), and Z. \n"
    "Example 1: \nQuestion: What is the main object in image?\nOptions: A. teddy bear B. rabbit C. cat D. dog\n"
    "Answer: a cute teddy bear\nYour output: A\n"
    "Example 2: \nQuestion: What is the main object in image?\nOptions: A. teddy bear B. rabbit C. cat D. dog\n"
    "Answer: Spider\nYour output: Z\n"
    "Example 3: \nQuestion: {question}?\nOptions: {options}\nAnswer: {answer}\nYour output: "
)
_BLINK = (
    "You are an AI assistant who will help me to match an answer with several options of a single-choice question. "
    "You are provided with a question, several options, and an answer, and you need to find which option is most "
    "similar to the answer. If the answer says things like refuse to answer, I'm sorry cannot help, etc., output Z."
    "If the meaning of all options are significantly different from the answer, or the answer does not select any "
    "option, output Z. Your should output one of the choices, A, B, C, D (if they are valid options), or Z.\n"
    "Example 1: \nQuestion: Which point is closer to the camera?\nSelect from the following choices.\n"
    "Options: A. Point A\nB. Point B\n(Z) Failed\n"
    "Answer: Point B, where the child is sitting, is closer to the camera.\nYour output: (B)\n"
    "Example 2: \nQuestion: Which point is closer to the camera?\nSelect from the following choices.\n"
    "Options: (A) Point A\n(B) Point B\n(Z) Failed\n"
    "Answer: I'm sorry, but I can't assist with that request.\nYour output: (Z)\n"
    "Example 3: \nQuestion: Which point is corresponding to the reference point?\nSelect from the following choices.\n"
    "Options: (A) Point A\n(B) Point B\n(Z) Failed\n"
    "Answer:The reference point (REF) on the first image is at the tip of the pot, which is the part used to Poke if "
    "the pots were used for that action. Looking at the second image, we need to find the part of the object that "
    "would correspond to poking.\n"
    "(A) Point A is at the tip of the spoon's handle, which is not used for poking.\n"
    "(B) Point B is at the bottom of the spoon, which is not used for poking.\n"
    "(C) Point C is on the side of the pspoonot, which is not used for poking.\n"
    "(D) Point D is at the tip of the spoon, which is not used for poking.\n"
    "\nTherefore, there is no correct answer in the choices\nYour output: (Z)\n"
    "Example 4: \nQuestion: {question}?\nOptions: {options}\n(Z) Failed\nAnswer: {answer}\nYour output: "
)
_YES_NO = (
    "You are an AI assistant who will help me to match an answer with two options of a question. The options are only "
    "Yes / No. You are provided with a question and an answer, and you need to find which option (Yes / No) is most "
    "similar to the answer. If the meaning of all options are significantly different from the answer, output Unknown. "
    "Your should output a single word among the following 3 choices: Yes, No, Unknown.\n"
    "Example 1: \nQuestion: Is the word in this image 'Hello'?\nAnswer: The word in this image is 'Hello'.\n"
    "Your output: Yes\n"
    "Example 2: \nQuestion: Is the word in this image 'Hello'?\nAnswer: The word in this image is not 'Hello'.\n"
    "Your output: No\n"
    "Example 3: \nQuestion: {question}?\nAnswer: {answer}\nYour output: "
)
_EXTRACT = (
    "\nPlease read the following example.\nThen extract the answer from the model response and type it at the end of "
    "the prompt.\n\n"
    "\nHint: Please answer the question requiring an integer answer and provide the final value,\n"
    "e.g., 1, 2, 3, at the end.\n\nQuestion: Which number is missing?\n\n"
    "Model response: The number missing in the sequence is 14.\n\nExtracted answer: 14\n\n"
    "\nHint: Please answer the question requiring a floating-point number with one decimal place and provide the final "
    "value,\ne.g., 1.2, 1.3, 1.4, at the end.\n\n"
    "Question: What is the fraction of females facing the camera?\n\n"
    "Model response: The fraction of females facing the camera is 0.6,\n"
    "which means that six out of ten females in the group are facing the camera.\n\nExtracted answer: 0.6\n\n"
    "\nHint: Please answer the question requiring a floating-point number with two decimal places and provide the "
    "final value,\ne.g., 1.23, 1.34, 1.45, at the end.\n\n"
    "Question: How much money does Luca need to buy a sour apple candy and a butter-scotch candy? (Unit: $)\n\n"
    "Model response: Luca needs $1.45 to buy a sour apple candy and a butterscotch candy.\n\nExtracted answer: 1.45\n\n"
    "\nHint: Please answer the question requiring a Python list as an answer and provide the final list,\n"
    "e.g., [1, 2, 3], [1.2, 1.3, 1.4], at the end.\n\n"
    "Question: Between which two years does the line graph saw its maximum peak?\n\n"
    "Model response: The line graph saw its maximum peak between 2007 and 2008.\n\nExtracted answer: [2007, 2008]\n\n"
    "\nHint: Please answer the question and provide the correct option letter, e.g., A, B, C, D, at the end.\n\n"
    "Question: What fraction of the shape is blue?\n\nChoices: (A) 3/11 (B) 8/11 (C) 6/11 (D) 3/5\n\n"
    "Model response: The correct answer is (B) 8/11.\n\nExtracted answer: B\n\n"
    "{question}\nModel respone: {answer}Extracted answer:"
)
_TEXTS: dict[JudgeForm, str] = {"options": _OPTIONS, "blink": _BLINK, "yes_no": _YES_NO, "extract": _EXTRACT}


def vlmevalkit_prompt(question: Question, answer: str, form: JudgeForm) -> str:
    """Build VLMEvalKit's prompt about an answer, thinking included. Only control tokens are changed."""
    options = "".join(f"{letter}. {words}\n" for letter, words in question.options.items())
    return _TEXTS[form].format(
        question=break_served_control_tokens(question.wording),
        options=break_served_control_tokens(f"There are several options: \n{options}"),
        answer=break_served_control_tokens(answer),
    )
