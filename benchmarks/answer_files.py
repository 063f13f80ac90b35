"""Read the files of outputs that the labels for versions 5 and 6 of the reader name: ten repositories, ten formats.

The texts stay in those repositories. A row is named by its index, its key, or its place in the file.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LETTERS = "ABCDEFGHIJ"
NOTHING = "nothing"
"""What the authors extracted where their script ran and found no answer."""
SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


@dataclass(frozen=True)
class Answer:
    """What a model wrote, the options, the question, and what the authors extracted; "" where nothing is saved."""

    text: str
    options: dict[str, str]
    asked: str = ""
    theirs: str = ""


def lines(path: Path) -> list[dict]:
    """Read a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def sheet(path: Path) -> list[dict[str, str]]:
    """Read the first sheet of a workbook: one dictionary per row, by the names in its first row."""
    with zipfile.ZipFile(path) as book:
        shared = []
        if "xl/sharedStrings.xml" in book.namelist():
            tree = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
            shared = [_text(item) for item in tree.iter(f"{SHEET}si")]
        tree = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
    rows = [dict(_cell(cell, shared) for cell in row.iter(f"{SHEET}c")) for row in tree.iter(f"{SHEET}row")]
    return [{rows[0][column]: value for column, value in row.items() if column in rows[0]} for row in rows[1:]]


def _text(element: ElementTree.Element) -> str:
    return "".join(part.text or "" for part in element.iter(f"{SHEET}t"))


def _cell(cell: ElementTree.Element, shared: list[str]) -> tuple[str, str]:
    column = re.match("[A-Z]+", cell.get("r", "")).group()
    value = cell.findtext(f"{SHEET}v") or ""
    if cell.get("t") == "inlineStr":
        value = _text(cell)
    return column, shared[int(value)] if cell.get("t") == "s" else value


def in_question(asked: str) -> dict[str, str]:
    """Return the options that a question of LogicVista lists, as in "(A) one (B) two"; else A to E without words."""
    parts = re.split(r"\(([A-E])\)", asked)
    words = {letter: text.strip(" ,.\n") for letter, text in zip(parts[1::2], parts[2::2], strict=True)}
    in_order = len(words) > 1 and "".join(words) == "ABCDE"[: len(words)]
    return words if in_order else dict.fromkeys("ABCDE", "")


def vlmevalkit(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """VLMEvalKit's workbooks; a second one next to it holds what its judge extracted, if the benchmark has one."""
    beside = path.with_name(f"{path.stem}_gpt4o-mini.xlsx")
    judged = {row["index"]: row.get("res") or NOTHING for row in sheet(beside)} if beside.is_file() else {}
    for row in sheet(path):
        options = {letter: row[letter] for letter in LETTERS if row.get(letter)}
        if "LogicVista" in path.name:
            options = in_question(row["question"])
        yield row["index"], Answer(row.get("prediction", ""), options, row["question"], judged.get(row["index"], ""))


def training_log(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Samples of evaluations during training; a row is "step/sample"."""
    steps = re.split(r"^## === Evaluation Step (\d+) ===.*$", path.read_text(encoding="utf-8"), flags=re.M)
    for step, log in zip(steps[1::2], steps[2::2], strict=True):
        samples = re.split(r"^### Sample (\d+)$", log, flags=re.M)
        for sample, body in zip(samples[1::2], samples[2::2], strict=True):
            prompt, _, rest = body.partition("**Completion:** ")
            asked = prompt.rpartition("<|vision_end|>")[2].partition("<|im_end|>")[0]
            options = dict(re.findall(r"^([A-J]): (.*)$", asked, flags=re.M))
            yield f"{step}/{sample}", Answer(rest.partition("\n\n**Rewards:**")[0], options, asked.partition("\n")[0])


def gaokao(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Chinese examination questions; their options are part of the question, and often only in the picture."""
    for row in json.loads(path.read_text(encoding="utf-8"))["example"]:
        parts = re.split(r"(?<![A-Za-z])([ABCD])[.\uff0e、]", row["question"])
        words = dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))
        options = words if list(words) == list("ABCD") else dict.fromkeys("ABCD", "")
        theirs = "".join(row["model_answer"]) or NOTHING
        yield str(row["index"]), Answer(row["model_output"], options, row["question"], theirs)


def logicvista(folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """LogicVista's own files of answers; its options are in the question or only in the picture."""
    questions = json.loads((folder / "data" / "dataset.json").read_text(encoding="utf-8"))
    for row, output in json.loads(path.read_text(encoding="utf-8")).items():
        asked = questions[row]["question"]
        yield row, Answer(str(output["answer"]), in_question(asked), asked)


def vepo(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """MathVista's format, with question and choices in the same file."""
    for row, output in json.loads(path.read_text(encoding="utf-8")).items():
        options = dict(zip(LETTERS, output["choices"] or [], strict=False))
        yield row, Answer(str(output.get("response", "")), options, output["question"])


def r1_v(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Counting and geometry with what the authors' script extracted; rows by their place."""
    for row, output in enumerate(json.loads(path.read_text(encoding="utf-8"))["results"]):
        theirs = NOTHING if output["extracted_answer"] is None else str(output["extracted_answer"])
        yield str(row), Answer(output["model_output"], {}, output["question"]["question"], theirs)


def cmmu(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Chinese questions with one blank to fill in."""
    for output in json.loads(path.read_text(encoding="utf-8")):
        if output["type"] == "fill-in-the-blank":
            yield output["question_id"], Answer(str(output["answer"]), {}, output["prompt"])


def mme(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """MME's tables of picture, question, gold and answer; rows by their place."""
    for row, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        _, asked, _, text = line.split("\t", 3)
        yield str(row), Answer(text, {}, asked)


def halp(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Two reports that quote questions and answers; a row is "model/place"."""
    page = path.read_text(encoding="utf-8")
    sections = re.split(r"^## (.*)$", page, flags=re.M)
    for model, section in zip(sections[1::2], sections[2::2], strict=True):
        quoted = re.findall(HALP_EXAMPLE, section, flags=re.S | re.M)
        for place, (asked, _, text) in enumerate(quoted):
            yield f"{model}/{place}", Answer(re.sub("^> ?", "", text, flags=re.M).strip(), {}, asked.strip())


def visonlyqa(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Options (a) to (e) in the question, or True and False; `y_pred` is what the authors' script extracted."""
    for row, output in enumerate(lines(path)):
        asked = output["prompt"].removeprefix("<image>").partition("\n\nIn your response")[0].strip()
        parts = re.split(r"\(([a-e])\)", asked)
        options = {letter.upper(): text.strip() for letter, text in zip(parts[1::2], parts[2::2], strict=True)}
        if not options:
            options = {"A": "True", "B": "False"}
        yield str(row), Answer(output["response"], options, asked, str(output["y_pred"] or NOTHING))


HALP_EXAMPLE = (
    r"\*\*Question:\*\* (.*?)\s+^(?:- )?\*\*Ground Truth:\*\*(.*?)^(?:- )?\*\*Model Answer:\*\*"
    r"(.*?)(?=^(?:- )?\*\*(?:Status|Basic Hallucination Type):)"
)

FORMATS = {
    "VLMEvalKit": vlmevalkit,
    "trl_DAPO": training_log,
    "GAOKAO-MM-llava-moss2": gaokao,
    "LogicVista": logicvista,
    "VEPO": vepo,
    "R1-V": r1_v,
    "CMMU": cmmu,
    "VLM-Benchmarks": mme,
    "HALP_EACL": halp,
    "VisOnlyQA": visonlyqa,
}
COMMITS = {
    "VLMEvalKit": "chengyuehuang511/VLMEvalKit@069b4c461780b273b80ed8f2e159424fba5ac4da",
    "trl_DAPO": "JuncyLu/trl_DAPO@a87bdf91ddbe9a4676fd8933a0405675ca1d7bc4",
    "GAOKAO-MM-llava-moss2": "red-fox-yj/GAOKAO-MM-llava-moss2@59ab22862788d2510fe7f70c4d4e3c6fea9b98bb",
    "LogicVista": "Yijia-Xiao/LogicVista@e5795f17189ce1243231250af7d8c112ae2c5a57",
    "VEPO": "zjhhjz512/VEPO@9ccc9f3b978e0bb95de5039d92895fcffbe48f2e",
    "R1-V": "Deep-Agent/R1-V@bbbbe3dc1ea6a74ce31c118c1722b1ee73e372ba",
    "CMMU": "FlagOpen/CMMU@75bffb4c27d38123e642ee0575baf81bd2eef625",
    "VLM-Benchmarks": "Haoming2000/VLM-Benchmarks@6d394c981c5f7300c12905b2d5bbb14898399730",
    "HALP_EACL": "alliedbrother/HALP_EACL@342e35ccd6b2524456433b2a73701fd5dd49afca",
    "VisOnlyQA": "psunlpgroup/VisOnlyQA@33a1355dbe467352f6f82d3911636f7cc8de6ada",
}
