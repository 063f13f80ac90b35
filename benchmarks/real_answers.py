r"""Compare the reader of final answers with the benchmarks' authors on the outputs of real models.

    git clone https://github.com/zeyofu/BLINK_Benchmark; git clone https://github.com/lupantech/MathVista
    git clone https://github.com/neilkale/crossmodal-eval
    python benchmarks/real_answers.py --blink BLINK_Benchmark --mathvista MathVista \\
        --more crossmodal-eval/MathVista/results/qwen*/output_qwen.json

The repositories hold saved outputs of models, and the answers that their authors read with a language model; the third
has Qwen2.5-VL-7B and two of its fine-tuned versions, read with MathVista's script.
`agree` is the share of resolved answers with the same letter (BLINK) or the same verdict (MathVista). The authors err
too. BLINK's outputs come without the words of the options, which the reader would otherwise use.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.reading.exact import read_option
from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.evaluation.reading.marking import Marking, mark
from vcsd.evaluation.reading.mathvista_answer import edit_distance, is_right
from vcsd.types import Example, Prediction, Question, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LETTERS = dict.fromkeys("ABCD", "")
FEW_UNREAD = 15
"""Percent of unread answers below which a model states its answers plainly."""
NO_WORDS = dict.fromkeys("ABCD", "\0")
"""Options whose words occur in no text, so that the rule that looks for them finds none."""


def blink(folder: Path) -> None:
    """Print one line for each model in BLINK's saved outputs, validation split."""
    print("BLINK model                     N  resolved  agree   exact  final  authors")
    for model in sorted(path for path in (folder / "eval" / "saved_outputs").iterdir() if path.is_dir()):
        rows = [row for file in model.glob("*.json") for row in json.loads(file.read_text()).get("val", [])]
        texts = [str(row.get("full_prediction", "")) for row in rows]
        gold = [row["answer"].strip("()") for row in rows]
        theirs = [str(row.get("prediction") or "").strip("()") for row in rows]
        ours = [read_answer(text, "option", LETTERS).found for text in texts]
        exact = [read_option(text, NO_WORDS, "2025-08") for text in texts]
        resolved = [place for place, found in enumerate(ours) if found is not None]
        agree = share([ours[place] == theirs[place] for place in resolved])
        scores = [share([a == b for a, b in zip(found, gold, strict=True)]) for found in (exact, ours, theirs)]
        numbers = "  ".join(f"{score:5.1f}" for score in scores)
        print(f"{model.name:28.28} {len(rows):5}  {100 * len(resolved) / len(rows):7.1f}  {agree:5.1f}   {numbers}")


def mathvista(folder: Path, more: list[Path]) -> None:
    """Print one line for each model in MathVista's saved outputs, for more files, and for the gold answers."""
    rows = json.loads((folder / "data" / "testmini.json").read_text())
    queries = json.loads((folder / "data" / "query.json").read_text())
    questions = [question(name, row, queries[name]) for name, row in rows.items()]
    words = [row["answer"] for row in rows.values()]
    for mode in ("final", "exact"):
        for what, said in (("letters and numbers", [q.gold for q in questions]), ("words", words)):
            print(f"MathVista, gold {what} as predictions, {mode}: {share(rights(questions, said, mode)):.1f}")
    print("MathVista model                            N  resolved  agree   final  authors")
    scores, cells, script = [], np.zeros(2, int), their_script(folder)
    for file in [*sorted((folder / "results").glob("*/output_*.json")), *more]:
        outputs = json.loads(file.read_text() or "{}")
        if set(rows) - set(outputs) or "true_false" not in outputs["1"] or "extraction" not in outputs["1"]:
            continue
        answers = [Prediction(name, str(outputs[name]["response"]), "end") for name in rows]
        verdicts = mark(questions, answers, Marking("final"), BENCHMARKS)
        theirs = [bool(outputs[name].get("true_false")) for name in rows]
        same = [v.is_right == t for v, t in zip(verdicts, theirs, strict=True) if v.found is not None]
        ours = share([verdict.is_right for verdict in verdicts])
        name = file.parent.name if file in more else file.stem.removeprefix("output_")
        name = f"{name:38.38} {len(rows):5}"
        print(f"{name}  {100 * len(same) / len(rows):7.1f}  {share(same):5.1f}   {ours:5.1f}  {share(theirs):5.1f}")
        if file in more:
            continue
        cells += parity(script, rows, questions, outputs)
        if not any(word in file.stem for word in ("code", "guess", "template")):
            guessed = rights(questions, [answer.text for answer in answers], "final", "nearest")
            scores.append(Model(verdicts, theirs, guessed))
    print(f"nearest against the authors' script: {cells[1]} of {cells[0]} extractions are marked alike")
    print_correlations(scores)


@dataclass(frozen=True)
class Model:
    """How one model's answers are marked: by `final`, by the authors, and by `final` with the authors' guesses."""

    verdicts: list[Verdict]
    theirs: list[bool]
    guessed: list[bool]

    @property
    def unread(self) -> float:
        """The share of answers from which nothing is read."""
        return share([verdict.found is None for verdict in self.verdicts])

    @property
    def final(self) -> float:
        """The score in mode `final`."""
        return share([verdict.is_right for verdict in self.verdicts])

    def on_read(self) -> tuple[float, float]:
        """Return the scores of `final` and of the authors on the answers that are read."""
        pairs = [(v.is_right, t) for v, t in zip(self.verdicts, self.theirs, strict=True) if v.found is not None]
        return share([ours for ours, _ in pairs]), share([theirs for _, theirs in pairs])


def print_correlations(models: list[Model]) -> None:
    """Print how the ranking by `final` agrees with the authors' ranking, and why it does not."""
    theirs = [share(model.theirs) for model in models]
    few = [model for model in models if model.unread < FEW_UNREAD]
    final, unread = [model.final for model in models], [model.unread for model in models]
    guessed = [share(model.guessed) for model in models]
    lacks = [other - ours for ours, other in zip(final, theirs, strict=True)]
    rows = {
        f"final with the authors' scores, {len(models)} models that answer in words": (final, theirs),
        f"the same, the {len(few)} models with less than {FEW_UNREAD}% unread": (
            [model.final for model in few],
            [share(model.theirs) for model in few],
        ),
        "final and theirs, on the answers that are read": tuple(zip(*(m.on_read() for m in models), strict=True)),
        "final with the authors' guesses where nothing is read, and theirs": (guessed, theirs),
        "what final lacks of the authors' score, and the share unread": (lacks, unread),
    }
    for name, (first, second) in rows.items():
        print(f"rank correlation of {name}: {np.corrcoef(ranks(first), ranks(second))[0, 1]:.2f}")


def parity(normalise_theirs: Callable, rows: dict, questions: list[Question], outputs: dict) -> tuple[int, int]:
    """Mark the authors' extractions with `nearest` and with their script: how many, and how many verdicts agree."""
    num = same = 0
    for question in questions:
        row, extraction = rows[question.id], outputs[question.id].get("extraction")
        if extraction is None:
            continue
        kinds = (row["question_type"], row["answer_type"], row["precision"])
        theirs = normalise_theirs(extraction, row["choices"], *kinds) == row["answer"]
        num += 1
        same += is_right(question, str(extraction), "nearest") == theirs
    return num, same


def their_script(folder: Path) -> Callable:
    """Compile the normalisation of MathVista's own script from the clone, with this package's edit distance."""
    tree = ast.parse((folder / "evaluation" / "calculate_score.py").read_text())
    names = ("get_most_similar", "normalize_extracted_answer")
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    scope = {"re": re, "distance": edit_distance}
    exec(compile(ast.Module(functions, []), "calculate_score.py", "exec"), scope)
    return scope["normalize_extracted_answer"]


def rights(questions: list[Question], said: list[str], mode: str, mathvista: str | None = None) -> list[bool]:
    """Whether each answer is right."""
    answers = [Prediction(q.id, text, "end") for q, text in zip(questions, said, strict=True)]
    marking = Marking(mode, "2025-08", mathvista=mathvista)
    return [verdict.is_right for verdict in mark(questions, answers, marking, BENCHMARKS)]


def question(name: str, row: dict, query: str) -> Question:
    """A row of the authors' file as a question."""
    choices = row["choices"] or []
    options = dict(zip("ABCDEFGH", choices, strict=False))
    gold = "ABCDEFGH"[choices.index(row["answer"])] if choices else row["answer"]
    example = Example(name, [], [{"role": "user", "content": query}])
    fields = {"question": query, "precision": str(row["precision"] or "")}
    return Question(example, "MathVista_MINI", "option" if choices else row["answer_type"], gold, options, {}, fields)


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in order, from 0; equal values share the mean of their places."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def share(flags: list[bool]) -> float:
    return 100 * sum(flags) / max(1, len(flags))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blink", type=Path, help="path of a clone of zeyofu/BLINK_Benchmark")
    parser.add_argument("--mathvista", type=Path, help="path of a clone of lupantech/MathVista")
    parser.add_argument("--more", type=Path, nargs="*", default=[], help="more output files in MathVista's format")
    given = parser.parse_args()
    if given.blink:
        blink(given.blink)
    if given.mathvista:
        mathvista(given.mathvista, given.more)
