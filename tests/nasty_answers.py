"""Answers put together from pieces that trip readers up: stray letters, marks, refusals, numbers, other scripts."""

PIECES = [
    "A", "B", "C", "D", "E", "Z", "a", "b", "c", "d", "e", ".", ",", ":", ";", "!", "?", "*", "#", "(", ")", "[",
    "]", "{", "}", "<", ">", "\"", "'", "`", "$", "-", "_", "/", "\\", "=", "+", "@", "|", "~", " ", " ", " ", "\n",
    "\t", "\u00a0", "\u3000", "。", "\uff0c", "\uff08", "\uff09", "A.", "(B)", "**C**", "[D]", "{A}", "\\boxed{B}",
    "$C$", "\"D\"", "A:", "B)", "Option C", "option d", "A or B", "Z.", "\uff22", "the", "a dog", "A man", "is",
    "answer", "The answer is", "the answer is ", "answer is **B", "Answer: ", "answer\nis c",
    "answer  is  determined", "ANSWER IS D", "answer is: A", "The correct answer is", "because", "clear",
    "therefore", "Failed to obtain answer via API.", "Failed to obtain answer via API",
    "Cannot determine the answer", "I'm sorry, but without the image provided", "I can't process this file.",
    "Sorry, I can't help with images of people yet.", "yes", "no", "Yes", "No", "YES", "NO", "yes.", "no,", "yes!",
    "(no)", "no-one", "yes/no", "not", "nothing", "Yes,", "no;", "_no_", "1,000", "3.5", "12", "3", "0", "-1", "1.",
    ".5", "5%", "1,2,3", "2 ,3", "nan", "None", "red", "green", "Green", "blue", "dark green", "dog", "cat", "left",
    "right", "İ", "ß", "红色", "答案是B", "\\text{A}", "<think>", "</think>", "...", ". . .", "x. " * 31, "y. " * 33,
    "a.b", "1.2", "e.g.", "yes.no", "no.", ".yes", "yes .", "- no", "> yes", "`no`", "=yes=", "+no", "@yes",
]  # fmt: skip

OPTION_TEXTS = [
    "red", "green", "dark green", "Green", "blue", "a dog", "dog", "cat", "left", "right", "the left one", "3",
    "12", "3.5", "0", "A", "B", "C", "yes", "no", "İstanbul", "straße", "红色", "1,000", "None of these",
    "all of the above", "n", "an",
]  # fmt: skip


def text(rng, longest=12):
    """A few pieces, sometimes glued together, sometimes apart."""
    glue = rng.choice(["", " ", " ", "\n"])
    return glue.join(rng.choice(PIECES) for _ in range(rng.randint(0, longest)))


def options(rng, most=6):
    """Two or more lettered options, now and then with a letter missing."""
    letters = list("ABCDEFG"[: rng.randint(2, most)])
    if rng.random() < 0.1:
        letters.remove(rng.choice(letters))
    return {letter: rng.choice(OPTION_TEXTS) for letter in letters}
