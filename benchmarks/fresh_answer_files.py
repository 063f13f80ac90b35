"""Read the files of outputs that the fresh labels for version 10 of the reader name: five other repositories.

`DRAWN` is how many answers were drawn from each file, before their texts were read. Eligible are answers of more than
12 characters whose gold answer is one option, a number, or yes or no (II-Bench's are not public; its questions have one
right option each); of these, the draw takes the rows whose SHA-256 of "repository/file/row" is smallest. A number is an
integer where the question asks how many there are, else a float; of AECV-Bench the first draw takes `INTEGERS` and then
floats from each file. Two answers of the first draw are to a question for two counts, which should not have been
eligible; they were kept. The texts stay in those repositories.
"""

from __future__ import annotations

import ast
import csv
import json
from typing import TYPE_CHECKING

from answer_files import LETTERS, Answer, lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def drawings(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Questions about architects' drawings; a row is "drawing/question"."""
    with path.open(encoding="utf-8", newline="") as file:
        for output in csv.DictReader(file):
            yield f"{output['image_id']}/{output['qa_id']}", Answer(output["model_answer"], {}, output["question"])


def events(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Questions about what happens in a video; a row is "video/place"."""
    for group in json.loads(path.read_text(encoding="utf-8")).values():
        for video, output in group.items():
            for place, asked in enumerate(output["qa"]):
                yield f"{video}/{place}", Answer(asked["prediction"] or "", {}, asked["question"])


def disciplines(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """M4U with its options as a list in a string; rows by their place."""
    for row, output in enumerate(json.loads(path.read_text(encoding="utf-8"))["record"]):
        options = dict(zip(LETTERS, map(str, ast.literal_eval(output["options"])), strict=False))
        yield str(row), Answer(str(output["predict"]), options, output["question"])


def implications(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """II-Bench, with one question for each picture."""
    for picture in lines(path):
        for output in picture["questions"]:
            options = dict(zip(LETTERS, output["options"], strict=False))
            yield output["id"], Answer(output["response"], options, output["question"])


def illusions(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """IllusionVQA; what a model wrote is under another name in some files."""
    for output in json.loads(path.read_text(encoding="utf-8")):
        options = dict(zip(LETTERS, output["options"], strict=False))
        text = output.get("vlm_answer") or output.get("intern_answer") or ""
        yield str(output["id"]), Answer(text, options, output["question"])


FORMATS = {
    "AECV-Bench": drawings,
    "EventHallusion": events,
    "M4U": disciplines,
    "II-Bench": implications,
    "IllusionVQA": illusions,
}
COMMITS = {
    "AECV-Bench": "AECFoundry/AECV-Bench@9d115a31585c1f0dc783a374752da1c13764fce0",
    "EventHallusion": "Stevetich/EventHallusion@7396e0436676e9084125b284d124a4a196b2059a",
    "M4U": "M4U-Benchmark/M4U@65b97e0fa0598d8fceae356961e770068b248f58",
    "II-Bench": "II-Bench/II-Bench@1cf741d2b99a8638714be0ba4d9ce4f5fc4d2b27",
    "IllusionVQA": "csebuetnlp/IllusionVQA@9e1c2b89994d83c2887b4684142640220c5a8996",
}
ANSWERS = "benchmark_result_qa/qa_results"
RESULTS = "result/M4U/gpt4o"
INTEGERS = 4
DRAWN = {
    ("AECV-Bench", f"{ANSWERS}_amazon_nova_2_lite_v1.csv"): 9,
    ("AECV-Bench", f"{ANSWERS}_claude_opus_45.csv"): 9,
    ("AECV-Bench", f"{ANSWERS}_cohere_command_a_vision.csv"): 9,
    ("AECV-Bench", f"{ANSWERS}_gemini_3_pro_preview.csv"): 9,
    ("AECV-Bench", f"{ANSWERS}_glm_46v.csv"): 9,
    ("AECV-Bench", f"{ANSWERS}_grok_41_fast.csv"): 9,
    ("AECV-Bench", f"{ANSWERS}_mistral_large_2512.csv"): 9,
    ("AECV-Bench", f"{ANSWERS}_nvidia_nemotron_nano_12b_v2_vl.csv"): 9,
    ("AECV-Bench", f"{ANSWERS}_openai_gpt_52.csv"): 9,
    ("EventHallusion", "predictions/gemini_predictions.json"): 16,
    ("EventHallusion", "predictions/gpt4o_predictions.json"): 6,
    ("EventHallusion", "predictions/video_llava_predictions.json"): 26,
    ("M4U", f"{RESULTS}/engineering_en.json"): 6,
    ("M4U", f"{RESULTS}/engineering_zh.json"): 8,
    ("M4U", f"{RESULTS}/healthcare_en.json"): 6,
    ("M4U", f"{RESULTS}/healthcare_zh.json"): 8,
    ("M4U", f"{RESULTS}/science_en.json"): 8,
    ("M4U", f"{RESULTS}/science_zh.json"): 10,
    ("II-Bench", "results/yi-vl-6b-chat_test_cot.jsonl"): 25,
    ("IllusionVQA", "result_jsons/claude_3_5_sonnet_comprehension_0shot.json"): 6,
    ("IllusionVQA", "result_jsons/gpt4_1_comprehension.json"): 5,
    ("IllusionVQA", "result_jsons/internvl2_8B_comprehension.json"): 8,
    ("IllusionVQA", "result_jsons/o4-mini_comprehension.json"): 5,
}
DRAWN_AGAIN = {
    ("AECV-Bench", f"{ANSWERS}_amazon_nova_2_lite_v1.csv"): 3,
    ("AECV-Bench", f"{ANSWERS}_claude_opus_45.csv"): 5,
    ("AECV-Bench", f"{ANSWERS}_cohere_command_a_vision.csv"): 3,
    ("AECV-Bench", f"{ANSWERS}_gemini_3_pro_preview.csv"): 6,
    ("AECV-Bench", f"{ANSWERS}_grok_41_fast.csv"): 4,
    ("AECV-Bench", f"{ANSWERS}_mistral_large_2512.csv"): 8,
    ("EventHallusion", "predictions/gemini_predictions.json"): 2,
    ("EventHallusion", "predictions/video_llava_predictions.json"): 5,
    ("M4U", f"{RESULTS}/engineering_en.json"): 4,
    ("M4U", f"{RESULTS}/engineering_zh.json"): 8,
    ("M4U", f"{RESULTS}/healthcare_zh.json"): 4,
    ("M4U", f"{RESULTS}/science_en.json"): 4,
    ("M4U", f"{RESULTS}/science_zh.json"): 12,
    ("II-Bench", "results/yi-vl-6b-chat_test_cot.jsonl"): 3,
}
"""A second draw, of answers of more than 120 characters: most of the first are short. No version had read any yet."""
