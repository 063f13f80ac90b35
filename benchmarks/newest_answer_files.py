"""Read the files of outputs that the labels for versions 9 and 10 of the reader name in seven repositories.

`DRAWN`, `DRAWN_FOR_9` and `DRAWN_FOR_10` are how many answers were drawn from each file, before their texts were read.
Eligible are answers of more than 12 characters whose gold answer is one option, a number, or yes or no; of these, the
draw takes the rows whose SHA-256 of "repository/file/row" is smallest. A number is an integer where the question asks
how many there are, else a float (for MathVista, what it calls the type of the answer). The texts stay in those
repositories. Some files are in no branch's newest commit.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from answer_files import LETTERS, NOTHING, Answer, lines, vlmevalkit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def in_brackets(asked: str) -> dict[str, str]:
    """Return the options that a question lists, as in "(A) one or (B) two?"."""
    parts = re.split(r"\(([A-H])\)", asked)
    words = (text.partition("\n")[0].strip(" ,?").removesuffix(" or") for text in parts[2::2])
    return dict(zip(parts[1::2], words, strict=True))


def puzzles(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """PuzzleVQA with its options and what the authors' second prompt extracted; rows by their place."""
    for row, output in enumerate(lines(path)):
        options = dict(zip(LETTERS, output["options"], strict=False))
        yield str(row), Answer(output["raw_output"], options, output["question"], output["pred"] or NOTHING)


def scienceqa(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """ScienceQA with its options in the question; `parsed_ans` is what the authors' script extracted."""
    judged = json.loads(path.read_text(encoding="utf-8"))
    for output in judged["correct"] + judged["incorrect"]:
        asked, _, choices = output["question"].removeprefix("<image>\n").partition("\nOptions: ")
        theirs = output["parsed_ans"] if output["parsed_ans"] in LETTERS else NOTHING
        yield output["question_id"], Answer(output["pred"], in_brackets(choices), asked, theirs)


def tables(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Questions about pictures of tables."""
    for output in json.loads(path.read_text(encoding="utf-8"))["results"]:
        yield str(output["id"]), Answer(str(output["Prediction"]), {}, output["Question"])


def counterfactual(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Questions about photographs, and changed ones; a row is "question/original" or "question/place"."""
    for output in json.loads(path.read_text(encoding="utf-8")):
        original = output["original"]
        yield f"{output['question_id']}/original", Answer(original["model_prediction"], {}, original["question"])
        for place, changed in enumerate(output["counterfactuals"]):
            answer = Answer(changed["model_prediction"], {}, changed["counterfactual_question"])
            yield f"{output['question_id']}/{place}", answer


def batch(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Replies of OpenAI's batches; the questions are in the file of requests next to them."""
    requests = {row["custom_id"]: row for row in lines(path.with_name(REQUESTS[path.name]))}
    for output in lines(path):
        asked = requests[output["custom_id"]]["body"]["messages"][0]["content"][0]["text"]
        text = output["response"]["body"]["choices"][0]["message"]["content"]
        yield output["custom_id"], Answer(text, {}, asked)


def probes(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Short questions about photographs, some with two options; rows by their place."""
    for row, output in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        yield str(row), Answer(output["raw_response"] or "", in_brackets(output["question"]), output["question"])


LINES = "gpt-4o-third-run-results-batch_7IQQpDsgKAHHxisiqlSobQKq_output.jsonl"
SQUARES = "batch_qiX2iulpCqqbDZqSC29hLPl2_output.jsonl"
REQUESTS = {LINES: "lines-gpt4o-third.jsonl", SQUARES: "nestedsquares-gpt4o.jsonl"}
FORMATS = {
    "VLMEvalKit-GPT-4.1": vlmevalkit,
    "LLM-PuzzleTest": puzzles,
    "LLaVA": scienceqa,
    "RealHiTBENCH-Qwen3-VL": tables,
    "vlm-counterfactual-consistency": counterfactual,
    "vision-llms-are-blind": batch,
    "vlm-hallucination-benchmark": probes,
}
COMMITS = {
    "VLMEvalKit-GPT-4.1": "timothycdc/VLMEvalKit@2a1b2b5c7a8de312752ddc008119182a0276d491",
    "LLM-PuzzleTest": "declare-lab/LLM-PuzzleTest@65ce62d3885ba9b048c5ea5ced7a339ca2afeb10",
    "LLaVA": "haotian-liu/LLaVA@00f124bbaba85a7d2d511c7164eec51d7202af35",
    "RealHiTBENCH-Qwen3-VL": "jetfan-xin/RealHiTBENCH-Qwen3-VL@e2ce383125dabae713509f7afcde3f69bfb0ddfe",
    "vlm-counterfactual-consistency": (
        "sujithpeddireddy-neu/vlm-counterfactual-consistency@e141e0295fbb5ffd17e383593f3f2eaf8f693a61"
    ),
    "vision-llms-are-blind": "anguyen8/vision-llms-are-blind@014d4f9a258e661dad5f3595e2ac400443966c3d",
    "vlm-hallucination-benchmark": (
        "Navyasri12355/vlm-hallucination-benchmark@bae89aa1b63ebcd23248c88c3037a864e06b4587"
    ),
}
GPT = "gpt-4.1-2025-04-14"
PUZZLES = "PuzzleVQA/outputs_single"
REPLIES = "gpt4o/cot_multi_extract.jsonl"
DRAWN = {
    ("VLMEvalKit-GPT-4.1", f"{GPT}/T20250430_G0685f574/{GPT}_CharXiv_reasoning_val.xlsx"): 40,
    ("VLMEvalKit-GPT-4.1", f"{GPT}/T20250430_G0685f574/{GPT}_CharXiv_descriptive_val.xlsx"): 10,
    ("VLMEvalKit-GPT-4.1", f"{GPT}/T20250429_G02e291a8/{GPT}_tdbench_rot0.xlsx"): 26,
    ("LLM-PuzzleTest", f"{PUZZLES}/grid_number/{REPLIES}"): 5,
    ("LLM-PuzzleTest", f"{PUZZLES}/polygon_sides_color/{REPLIES}"): 5,
    ("LLM-PuzzleTest", f"{PUZZLES}/rectangle_height_color/{REPLIES}"): 5,
    ("LLM-PuzzleTest", f"{PUZZLES}/rectangle_height_number/{REPLIES}"): 5,
    ("LLM-PuzzleTest", f"{PUZZLES}/shape_reflect/{REPLIES}"): 5,
    ("LLM-PuzzleTest", f"{PUZZLES}/shape_size_grid/{REPLIES}"): 5,
    ("LLM-PuzzleTest", f"{PUZZLES}/shape_size_hexagon/{REPLIES}"): 5,
    ("LLM-PuzzleTest", f"{PUZZLES}/size_grid/{REPLIES}"): 5,
    ("LLaVA", "anwsers_DL_project/LEA/no_CoT/output.jsonl"): 28,
    ("RealHiTBENCH-Qwen3-VL", "result/complied/qwen3vl_default_pic/image/results.json"): 32,
    ("RealHiTBENCH-Qwen3-VL", "result/complied/qwen3vl_default_pic/mix_latex/results.json"): 14,
    ("vlm-counterfactual-consistency", "results/predictions/llava_predictions.json"): 18,
    ("vlm-counterfactual-consistency", "results/predictions/instructblip_predictions.json"): 20,
    ("vlm-counterfactual-consistency", "results/predictions/llava_lora_predictions.json"): 8,
    ("vision-llms-are-blind", f"Tasks/LinePlotIntersection/jsonl/{LINES}"): 14,
    ("vision-llms-are-blind", f"Tasks/NestedSquares/jsonl/{SQUARES}"): 10,
    ("vlm-hallucination-benchmark", "results/llava_raw_responses.json"): 48,
}
DRAWN_FOR_9 = {
    ("EduChat-Math", "outputs/closed-source/Gemini_shot.jsonl"): 14,
    ("EduChat-Math", "outputs/closed-source/Qwen_shot.jsonl"): 14,
    ("EduChat-Math", "outputs/open-source/cogvlm_shot.jsonl"): 14,
    ("EduChat-Math", "outputs/open-source/internlm_shot.jsonl"): 14,
    ("EduChat-Math", "outputs/open-source/mcmd_shot.jsonl"): 14,
}
"""Chinese answers, of which no new repository was found: other files of a known one, which no earlier label names."""
DRAWN_FOR_10 = {
    ("VLMEvalKit-GPT-4.1", f"{GPT}/T20250430_G0685f574/{GPT}_CharXiv_reasoning_val.xlsx"): 55,
    ("VLMEvalKit-GPT-4.1", f"{GPT}/T20250430_G0685f574/{GPT}_CharXiv_descriptive_val.xlsx"): 15,
    ("VLMEvalKit-GPT-4.1", f"{GPT}/T20250429_G02e291a8/{GPT}_tdbench_rot0.xlsx"): 10,
    ("LLM-PuzzleTest", f"{PUZZLES}/grid_number/{REPLIES}"): 4,
    ("LLM-PuzzleTest", f"{PUZZLES}/polygon_sides_color/{REPLIES}"): 4,
    ("LLM-PuzzleTest", f"{PUZZLES}/rectangle_height_color/{REPLIES}"): 4,
    ("LLM-PuzzleTest", f"{PUZZLES}/rectangle_height_number/{REPLIES}"): 4,
    ("LLM-PuzzleTest", f"{PUZZLES}/shape_reflect/{REPLIES}"): 4,
    ("LLM-PuzzleTest", f"{PUZZLES}/shape_size_grid/{REPLIES}"): 4,
    ("LLM-PuzzleTest", f"{PUZZLES}/shape_size_hexagon/{REPLIES}"): 3,
    ("LLM-PuzzleTest", f"{PUZZLES}/size_grid/{REPLIES}"): 3,
    ("LLaVA", "anwsers_DL_project/LEA/no_CoT/output.jsonl"): 30,
    ("RealHiTBENCH-Qwen3-VL", "result/complied/qwen3vl_default_pic/image/results.json"): 6,
    ("RealHiTBENCH-Qwen3-VL", "result/complied/qwen3vl_default_pic/mix_latex/results.json"): 4,
    ("vlm-counterfactual-consistency", "results/predictions/llava_predictions.json"): 10,
    ("vlm-counterfactual-consistency", "results/predictions/instructblip_predictions.json"): 10,
    ("vision-llms-are-blind", f"Tasks/LinePlotIntersection/jsonl/{LINES}"): 8,
    ("vision-llms-are-blind", f"Tasks/NestedSquares/jsonl/{SQUARES}"): 17,
    ("vlm-hallucination-benchmark", "results/llava_raw_responses.json"): 35,
    ("EduChat-Math", "outputs/closed-source/Gemini_shot.jsonl"): 8,
    ("EduChat-Math", "outputs/closed-source/Qwen_shot.jsonl"): 8,
    ("EduChat-Math", "outputs/open-source/cogvlm_shot.jsonl"): 8,
    ("EduChat-Math", "outputs/open-source/internlm_shot.jsonl"): 8,
    ("EduChat-Math", "outputs/open-source/mcmd_shot.jsonl"): 8,
    ("VEPO", "results/mathvista.json"): 10,
    ("crossmodal-eval", "MathVista/results/qwen/output_qwen.json"): 8,
    ("R1-V", "src/eval/logs/geoqa_test_qwen2vl_7b_instruct_legacy.json"): 8,
    ("MathVista", "results/bard/output_bard.json"): 8,
    ("MathVista", "results/llava/output_llava_llama_2_13b.json"): 4,
    ("MathVista", "results/llavar/output_llavar.json"): 4,
    ("MathVista", "results/minigpt4/output_minigpt4_llama2.json"): 4,
    ("MathVista", "results/mplugowl/output_mplugowl_7b_ft.json"): 4,
}
"""For version 10: the next eligible rows that no label names, 320 in all; of MathVista only questions for a number."""
