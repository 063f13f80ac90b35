"""Compare the reader of final answers with labels on the outputs of real models.

    python benchmarks/labelled_answers.py CLONES --out benchmarks/results/labelled_answers.json

CLONES is a folder with clones of the repositories below, at these commits; `--check FILE` compares every reading with
those that FILE records, and fails if one has changed. `tests/golden/real_answers.jsonl` holds the file, row, hash and
label of each answer, never its text. Answers whose file is missing or whose hash differs are skipped and counted. Half
of these labels were held out from version 3 of the reader; version 4 was developed on all of them.
`real_answers_later.jsonl` holds answers of other models, labelled after version 4 was fixed and before it read them.
Version 5 was developed on both, version 6 also on the next. `real_answers_version_5.jsonl` holds answers to other
benchmarks, labelled without a look at version 5, before it read them; `real_answers_version_6.jsonl` further
answers of the same files, and answers to VisOnlyQA, labelled in the same way for version 6.
Version 7 was developed on all of these. `real_answers_version_7.jsonl` holds answers of nine other repositories, drawn
by their hashes and labelled without a look at the reader or its errors; labels that may be disputed are marked as
debatable. `real_answers_version_8.jsonl` holds 300 further answers of the same files, the next by their hashes,
labelled in the same way for version 8; `real_answers_version_9.jsonl` 378 answers of seven other repositories, and
Chinese ones of other files, for version 9; `real_answers_version_10.jsonl` 320 further answers of these files, and of
older ones that ask for a number, for version 10. `real_answers_fresh.jsonl` holds 295 answers of five repositories that
no earlier label came from, labelled when version 10 was finished, before it read them.
`results/labelled_answers_reader_6.json` is what version 6 read, and so on down to version 2.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import answer_files
import fresh_answer_files
import later_answer_files
import newest_answer_files
from answer_files import LETTERS, Answer, lines
from vcsd.evaluation.reading import READER, read_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMITS = {
    "MathVista": "lupantech/MathVista@53d525874bdde205128e6b160b7357a88277d479",
    "MATH-V": "mathllm/MATH-V@a1f5cc3add200c0cd080fad463e500f44ef1fb41",
    "MMMU": "MMMU-Benchmark/MMMU@bb0b95a945998d91dfef37e969e07d49d1139438",
    "CMMMU": "CMMMU-Benchmark/CMMMU@79fe58bd84c004c3553a12e8f341bdf825994cd9",
    "HallusionBench": "tianyi-lab/HallusionBench@744007c232c292942c7f80eb61edb2465482da31",
    "BLINK_Benchmark": "zeyofu/BLINK_Benchmark@2d6a779be4aa1ad0d38d7aa539bcb43b6dd81592",
    "crossmodal-eval": "neilkale/crossmodal-eval@b314d51a0e21ef99c4cb5d84ef464b54b66a88f9",
    **answer_files.COMMITS,
    **later_answer_files.COMMITS,
    **newest_answer_files.COMMITS,
    **fresh_answer_files.COMMITS,
}
LABELS = Path(__file__).parents[1] / "tests" / "golden" / "real_answers.jsonl"
LATER = LABELS.with_name("real_answers_later.jsonl")
FIFTH = LABELS.with_name("real_answers_version_5.jsonl")
SIXTH = LABELS.with_name("real_answers_version_6.jsonl")
SEVENTH = LABELS.with_name("real_answers_version_7.jsonl")
EIGHTH = LABELS.with_name("real_answers_version_8.jsonl")
NINTH = LABELS.with_name("real_answers_version_9.jsonl")
TENTH = LABELS.with_name("real_answers_version_10.jsonl")
FRESH = LABELS.with_name("real_answers_fresh.jsonl")
UNSEEN = {
    FIFTH: ("version 5", 336),
    SIXTH: ("version 6", 220),
    SEVENTH: ("version 7", 494),
    EIGHTH: ("version 8", 300),
    NINTH: ("version 9", 378),
    TENTH: ("version 10", 320),
    FRESH: ("fresh", 224),
}
"""The part that these labels are, and how many were drawn first; the rest, harder or of rarer kinds, a second time."""
PARTS = ("open", "held out", "later", *(part for part, _ in UNSEEN.values()))
CHINESE = ("CMMU", "GAOKAO-MM-llava-moss2", "EduChat-Math")
Z = 1.959964


@cache
def answers(clones: Path, repository: str, file: str) -> dict[str, Answer]:
    """Read one file of outputs: the answers by their rows. Empty if the file is missing."""
    folder = clones / repository
    path = folder / file
    return dict(FORMATS[repository](folder, path)) if path.is_file() else {}


def _mathvista(folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    questions = json.loads((folder / "data" / "testmini.json").read_text(encoding="utf-8"))
    for row, output in json.loads(path.read_text(encoding="utf-8")).items():
        options = dict(zip(LETTERS, questions[row]["choices"] or [], strict=False))
        yield (
            row,
            Answer(
                str(output.get("response", "")), options, questions[row]["question"], str(output.get("extraction", ""))
            ),
        )


def _crossmodal(folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    if path.parts[len(folder.parts)] == "BLINK":
        yield from _blink(folder, path)
        return
    for row, output in json.loads(path.read_text(encoding="utf-8")).items():
        options = dict(zip(LETTERS, output["choices"] or [], strict=False))
        theirs = str(output.get("extraction", ""))
        yield row, Answer(str(output["response"]), options, output["question"], theirs)


def _mathv(folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    questions = {question["id"]: question for question in lines(folder / "data" / "test.jsonl")}
    for output in lines(path):
        asked = questions[output["id"]]
        options = dict(zip(LETTERS, asked["options"], strict=False))
        theirs = str(output.get("model_answer", ""))
        yield output["id"], Answer(str(output["response"]), options, asked["question"], theirs)


def _mmmu(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    if path.suffix == ".jsonl":
        for output in lines(path):
            options = dict(zip(LETTERS, ast.literal_eval(output["options"]), strict=False))
            yield output["id"], Answer(str(output["response"]), options, output["question"], str(output["pred_indexs"]))
        return
    for output in json.loads(path.read_text(encoding="utf-8")):
        if output["question_type"] == "multiple-choice":
            yield output["id"], Answer(str(output["response"]), output["index2ans"])


def _cmmmu(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    questions = {question["id"]: question for question in lines(path.parent / "cmmmu-data-val-answer.jsonl")}
    for output in lines(path):
        question = questions[output["id"]]
        choices = [str(question[f"option{number}"]) for number in range(1, 5)] if output["type"] == "选择" else []
        options = dict(zip("ABCD", choices, strict=False))
        yield str(output["id"]), Answer(str(output["response"]), options, question["question"])


def _hallusionbench(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    for row, output in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        yield str(row), Answer(str(output["model_prediction"]), {}, output["question"])


def _blink(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    for output in json.loads(path.read_text(encoding="utf-8")).get("val", []):
        text, theirs = str(output.get("full_prediction", "")), str(output.get("prediction", ""))
        yield output["idx"], Answer(text, dict.fromkeys("ABCD", ""), "", theirs)


FORMATS = {
    "MathVista": _mathvista,
    "MATH-V": _mathv,
    "MMMU": _mmmu,
    "CMMMU": _cmmmu,
    "HallusionBench": _hallusionbench,
    "BLINK_Benchmark": _blink,
    "crossmodal-eval": _crossmodal,
    **answer_files.FORMATS,
    **later_answer_files.FORMATS,
    **newest_answer_files.FORMATS,
    **fresh_answer_files.FORMATS,
}


def is_same(kind: str, found: str, label: str, options: dict[str, str]) -> bool:
    """Whether two values are equal: the same option (or one with the same words), or the same number."""
    if kind == "option":
        return found == label or (bool(options.get(found)) and options.get(found) == options.get(label))
    if kind in ("integer", "float"):
        return math.isclose(float(found), float(label), rel_tol=1e-6, abs_tol=1e-9)
    return found == label


def read_theirs(kind: str, theirs: str, options: dict[str, str]) -> str | None:
    """Return the authors' extraction as a value; None if it is none of the options, or no number."""
    said = theirs.strip().strip("$. ")
    if kind == "option":
        letter = said.strip("()").upper()
        if letter in options:
            return letter
        bracketed = [letter for letter in options if f"({letter})" in said.upper()]
        alike = [letter for letter, words in options.items() if words and words.strip("$ ").lower() == said.lower()]
        return (bracketed or alike or [None])[0] if len(bracketed) <= 1 else None
    try:
        return str(float(said.replace(",", "")))
    except ValueError:
        return None


def tally(rows: list[dict], key: str) -> dict[str, dict[str, float]]:
    """Count, for each value of a key and for all rows: decided, right, readable but undecided."""
    groups = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
        groups["all"].append(row)
    return {name: _counts(group) for name, group in sorted(groups.items())}


def _counts(group: list[dict]) -> dict[str, float]:
    decided = [row for row in group if row["found"] is not None]
    right = sum(row["is_right"] for row in decided)
    readable = [row for row in group if row["label"] is not None]
    missed = sum(row["found"] is None for row in readable)
    low, high = wilson(right, len(decided))
    counts = {"answers": len(group), "decided": len(decided), "right": right, "readable": len(readable)}
    shares = {"precision": _share(right, len(decided)), "low": low, "high": high}
    return {**counts, "missed": missed, **shares, "undecided": _share(len(group) - len(decided), len(group))}


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def wilson(right: int, num: int) -> tuple[float, float]:
    """Return the 95% score interval of a share, in percent."""
    if not num:
        return 0.0, 100.0
    share, spread = right / num, Z * Z / num
    centre = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / num + spread / (4 * num))
    return round(100 * max(0.0, centre - half), 1), round(100 * min(1.0, centre + half), 1)


def labels(path: Path) -> list[dict]:
    """Read a file of labels, and name the part that each belongs to."""
    rows = lines(path)
    if path not in UNSEEN:
        parts = {None: "later", False: "open", True: "held out"}
        return [{**row, "part": parts[row.get("held_out")]} for row in rows]
    part, num_first = UNSEEN[path]
    return [{**row, "part": part, **groups(row, is_first=place < num_first)} for place, row in enumerate(rows)]


def groups(row: dict, *, is_first: bool) -> dict[str, str]:
    """Return the groups that a label is counted in, next to its kind and its model."""
    benchmark = row["model"].partition("/")[0]
    return {"draw": "first" if is_first else "second", "language": language(row), "benchmark": benchmark}


def language(row: dict) -> str:
    """Return the language of a question's benchmark."""
    return "Chinese" if row["repository"] in CHINESE or row["file"].endswith("_zh.json") else "English"


def judged(clones: Path) -> tuple[list[dict], list[dict], Counter]:
    """Read every labelled answer: rows for the reader, rows for the authors' extraction, and what was skipped."""
    ours, theirs, skipped = [], [], Counter()
    for label in [*labels(LABELS), *labels(LATER), *(label for path in UNSEEN for label in labels(path))]:
        answer = answers(clones, label["repository"], label["file"]).get(label["row"])
        if answer is None:
            skipped["missing"] += 1
            continue
        if hashlib.sha256(answer.text.encode()).hexdigest()[:16] != label["sha256"]:
            skipped["changed"] += 1
            continue
        kind, options = label["kind"], answer.options
        found = read_answer(answer.text, kind, options, answer.asked).found
        ours.append(_row(label, found, options))
        if answer.theirs:
            theirs.append(_row(label, read_theirs(kind, answer.theirs, options), options))
    return ours, theirs, skipped


def _row(label: dict, found: str | None, options: dict[str, str]) -> dict:
    is_right = None not in (found, label["label"]) and is_same(label["kind"], found, label["label"], options)
    return {**label, "found": found, "is_right": is_right}


def report(clones: Path) -> dict:
    """Return the counts of every part of the labels, by kind of answer and by model, for the reader and the authors."""
    ours, theirs, skipped = judged(clones)
    again = [row for row in ours if "again" in row]
    with_theirs = {(row["repository"], row["file"], row["row"]) for row in theirs}
    parts = {}
    for name in PARTS:
        mine = [row for row in ours if row["part"] == name]
        same = [row for row in mine if (row["repository"], row["file"], row["row"]) in with_theirs]
        authors = [row for row in theirs if row["part"] == name]
        parts[name] = {
            "by kind": tally(mine, "kind"),
            "by model": tally(mine, "model"),
            "where the authors extracted": {"reader": tally(same, "kind"), "authors": tally(authors, "kind")},
            "read otherwise": read_otherwise(mine),
        }
        if name in dict(UNSEEN.values()):
            parts[name] |= {f"by {key}": tally(mine, key) for key in ("draw", "language", "benchmark")}
    twice = {"answers": len(again), "same label": sum(row["again"] == row["label"] for row in again)}
    return {"reader": READER, "sources": COMMITS, "skipped": dict(skipped), "labelled twice": twice, "parts": parts}


def read_otherwise(rows: list[dict]) -> list[dict]:
    """Return the answers whose reading is not their label: wrong, or unread though a person can read them."""
    keys = ("repository", "file", "row", "kind", "label", "found")
    return [
        {key: row[key] for key in keys}
        for row in rows
        if not row["is_right"] and (row["found"], row["label"]) != (None, None)
    ]


def changes(result: dict, recorded: dict) -> list[str]:
    """Return one line for each answer that is not read as recorded; also if some were not read at all."""
    changed = []
    now, then = _readings(result), _readings(recorded)
    for place in sorted({*now, *then}):
        before, after = then.get(place, "as labelled"), now.get(place, "as labelled")
        if before != after:
            changed.append(f"{place}: recorded {before}, now {after}")
    if result["skipped"] != recorded["skipped"]:
        changed.append(f"skipped answers: recorded {recorded['skipped']}, now {result['skipped']}")
    return changed


def _readings(result: dict) -> dict[str, str | None]:
    rows = [row for part in result["parts"].values() for row in part["read otherwise"]]
    return {f"{row['repository']}/{row['file']} {row['row']}": row["found"] for row in rows}


def print_report(result: dict) -> None:
    """Print the tables."""
    for part, tables in result["parts"].items():
        shown = {key: table for key, table in tables.items() if key.startswith("by ")}
        shown |= {f"authors' files, {who}": table for who, table in tables["where the authors extracted"].items()}
        for title, table in shown.items():
            print(f"\n{part}, {title:28}    N  decided  right  precision   95%           undecided  missed")
            for name, row in table.items():
                span = f"{row['low']:5.1f}-{row['high']:5.1f}"
                print(
                    f"  {name:38} {row['answers']:5} {row['decided']:8} {row['right']:6} {row['precision']:10.1f}"
                    f"   {span:12} {row['undecided']:10.1f} {row['missed']:7}"
                )
    print(f"\nskipped: {result['skipped'] or 'none'}; labelled twice: {result['labelled twice']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clones", type=Path, help="folder with the clones, each named as its repository")
    parser.add_argument("--out", type=Path, help="also write the counts as JSON")
    parser.add_argument("--check", type=Path, help="fail unless every answer is read as this file records")
    given = parser.parse_args()
    counted = report(given.clones)
    print_report(counted)
    if given.check:
        changed = changes(counted, json.loads(given.check.read_text(encoding="utf-8")))
        sys.exit("\n".join(changed) or None)
    if given.out:
        given.out.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")
