"""Read the files of outputs that the labels for versions 7 and 8 of the reader name: nine repositories.

`DRAWN` is how many answers were drawn from each file, written down before their texts were read. Eligible are answers
of more than 12 characters whose gold answer is one option, a number, or yes or no; of these, the draw takes the rows
whose SHA-256 of "repository/file/row" is smallest. The texts stay in those repositories.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from answer_files import LETTERS, NOTHING, Answer, lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def emma(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """EMMA's format; options that are only in the picture are saved as their letters."""
    for row, output in json.loads(path.read_text(encoding="utf-8")).items():
        choices = zip(LETTERS, output["options"] or [], strict=False)
        options = {letter: "" if words == letter else words for letter, words in choices}
        text = output.get("response") or output.get("response_0") or ""
        theirs = (output.get("extraction") or NOTHING) if "response" in output else ""
        yield row, Answer(str(text), options, output["question"], str(theirs))


def m3cot(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Conversations of M3CoT; the answer is a model's first reply, before it is asked for a letter."""
    for output in lines(path):
        prompt, text = output["messages"][:2]
        asked = prompt.partition("\n[Choices]")[0].replace("[Question]\n", "")
        yield output["id"], Answer(str(text), dict(zip(LETTERS, output["choices"], strict=False)), asked)


def cmm_math(folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Chinese questions with options, and statements to judge; the questions themselves are not saved."""
    kinds = json.loads((folder / "data" / "Question_type_index.txt").read_text(encoding="utf-8"))
    choices, judged = set(kinds["选择题列表"]), set(kinds["判断题列表"])
    for output in lines(path):
        if output["id"] in choices | judged:
            options = dict.fromkeys("ABCD", "") if output["id"] in choices else {}
            yield output["id"], Answer(str(output["answer"]), options)


def mm_iq(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Example outputs of MM-IQ; question and options are in the picture."""
    for output in lines(path):
        yield str(output["data_id"]), Answer(str(output["response"]), dict.fromkeys("ABCD", ""))


def mathvista(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """MathVista's format, with question, choices and extraction in the same file."""
    for row, output in json.loads(path.read_text(encoding="utf-8")).items():
        options = dict(zip(LETTERS, output["choices"] or [], strict=False))
        theirs = str(output.get("extraction") or NOTHING)
        yield row, Answer(str(output.get("response", "")), options, output["question"], theirs)


def probes(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """Short questions about photographs, charts, screenshots and medical images; rows by their place."""
    for row, output in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        yield str(row), Answer(output["raw_response"], {}, output["question"])


def fluffy(_folder: Path, path: Path) -> Iterator[tuple[str, Answer]]:
    """A-OKVQA with its options, which have no letters, in the prompt."""
    for output in json.loads(path.read_text(encoding="utf-8")):
        prompt = output["prompt_multiple choice (aokvqa)"]
        asked, _, choices = prompt.partition("Questions: ")[2].partition("\nChoices: ")
        words = choices.partition(".\nAnswer:")[0].split(", ")
        options = dict(zip(LETTERS, words, strict=False))
        yield output["text_input_id"], Answer(output["output_multiple choice (aokvqa)"], options, asked)


FORMATS = {
    "STARE": emma,
    "EMMA": emma,
    "M3CoT": m3cot,
    "EduChat-Math": cmm_math,
    "MMIQ": mm_iq,
    "MathVista-InternVL": mathvista,
    "MultiMath": mathvista,
    "vlm-hallucination": probes,
    "FLUFFY": fluffy,
}
COMMITS = {
    "STARE": "STARE-bench/STARE@08b25bcb5a422007ad31dadadb2ca7f344503fe8",
    "EMMA": "hychaochao/EMMA@838b6de9a180a8e1093a4c62a22d6b6d81315dac",
    "M3CoT": "LightChen233/M3CoT@ee50d5ac69661f81731d33647dd307d1f84eada5",
    "EduChat-Math": "ECNU-ICALK/EduChat-Math@ccaedb70c923e90b43bd861f22446b1c68218940",
    "MMIQ": "AceCHQ/MMIQ@8356c3e1ce4bf1529a3ab3d24439ecd7a893b72e",
    "MathVista-InternVL": "LCL-1729/MathVista-InternVL@2d6b7fd227b0817be7d25ade651e11562eaae42a",
    "MultiMath": "pengshuai-rin/MultiMath@7174bda124aba601c2fd2739272a97b4add2b263",
    "vlm-hallucination": "oladri-renuka/vlm-hallucination@73d7171e9763e03e565916f893014b66601b071e",
    "FLUFFY": "ClaraLovesFunk/FLUFFY-MLLM-Benchmark@2afbb474f73a60f36f6a759295a597abce9c40e6",
}
MINI = "results/EMMA-mini"
THINKING = f"{MINI}/close-source/gemini-2.0-flash-thinking-exp-1219"
DRAWN = {
    ("STARE", f"{MINI}/open-source/Qwen2.5-VL-72B-Instruct_Coding_Chemistry_Physics_Math_CoT.json"): 36,
    ("STARE", f"{MINI}/open-source/InternVL3-78B_Coding_Math_CoT.json"): 16,
    ("STARE", f"{MINI}/open-source/InternVL3-78B_Physics_Chemistry_CoT.json"): 16,
    ("STARE", f"{MINI}/open-source/InternVL2_5_CoT.json"): 18,
    ("STARE", f"{MINI}/open-source/InternVL2_CoT.json"): 14,
    ("STARE", f"{MINI}/open-source/Qwen_CoT.json"): 18,
    ("STARE", f"{MINI}/open-source/Llava_CoT.json"): 12,
    ("STARE", f"{MINI}/close-source/gpt_CoT.json"): 14,
    ("STARE", f"{MINI}/close-source/claude_CoT.json"): 14,
    ("STARE", f"{MINI}/close-source/gemini_CoT.json"): 14,
    ("STARE", f"{THINKING}_Chemistry_CoT.json"): 2,
    ("STARE", f"{THINKING}_Coding_CoT.json"): 2,
    ("STARE", f"{THINKING}_Math_CoT.json"): 2,
    ("STARE", f"{THINKING}_Physics_CoT.json"): 2,
    ("EMMA", "results/test-time-compute/pass@1/chatgpt-4o-latest_Chemistry_8.json"): 3,
    ("EMMA", "results/test-time-compute/pass@1/chatgpt-4o-latest_Coding_8.json"): 3,
    ("EMMA", "results/test-time-compute/pass@1/chatgpt-4o-latest_Math_16.json"): 3,
    ("EMMA", "results/test-time-compute/pass@1/chatgpt-4o-latest_Physics_8.json"): 3,
    ("M3CoT", "experiment/zero-shot/gemini/cot.jsonl"): 18,
    ("M3CoT", "experiment/zero-shot/gpt4v/direct.jsonl"): 22,
    ("M3CoT", "experiment/zero-shot/llava-13b/cot.jsonl"): 14,
    ("M3CoT", "experiment/zero-shot/llava-7b/cot.jsonl"): 10,
    ("M3CoT", "experiment/zero-shot/cogvlm/cot.jsonl"): 8,
    ("M3CoT", "experiment/zero-shot/instruct-blip-13b/cot.jsonl"): 6,
    ("M3CoT", "experiment/zero-shot/kosmos-2/cot.jsonl"): 8,
    ("EduChat-Math", "outputs/closed-source/Gemini_common.jsonl"): 16,
    ("EduChat-Math", "outputs/closed-source/Qwen_common.jsonl"): 20,
    ("EduChat-Math", "outputs/open-source/cogvlm_common.jsonl"): 14,
    ("EduChat-Math", "outputs/open-source/internlm_common.jsonl"): 20,
    ("EduChat-Math", "outputs/open-source/mcmd_common.jsonl"): 18,
    ("MMIQ", "mmiq/example_outputs/example_model_output/output_example.jsonl"): 20,
    ("MathVista-InternVL", "results/internVL2/output_internVL2-1b-mini.json"): 24,
    ("MultiMath", "eval_mathvista/outputs/pred_checkpoints_release.json"): 8,
    ("vlm-hallucination", "results_internvl2.json"): 32,
    ("vlm-hallucination", "results_llava.json"): 32,
    ("FLUFFY", "experiments/llava/aokvqa/run1/output.json"): 12,
}
DRAWN_AGAIN = {
    ("MathVista-InternVL", "results/internVL2/output_internVL2-1b-mini.json"): 19,
    ("vlm-hallucination", "results_internvl2.json"): 10,
    ("vlm-hallucination", "results_llava.json"): 16,
    ("EduChat-Math", "outputs/closed-source/Gemini_common.jsonl"): 4,
    ("EduChat-Math", "outputs/closed-source/Qwen_common.jsonl"): 4,
    ("EduChat-Math", "outputs/open-source/cogvlm_common.jsonl"): 4,
    ("EduChat-Math", "outputs/open-source/internlm_common.jsonl"): 4,
    ("EduChat-Math", "outputs/open-source/mcmd_common.jsonl"): 4,
}
"""A second draw, of kinds that are rare in the first: numbers, and Chinese statements to judge."""
DRAWN_FOR_8 = {
    ("STARE", f"{MINI}/open-source/Qwen2.5-VL-72B-Instruct_Coding_Chemistry_Physics_Math_CoT.json"): 8,
    ("STARE", f"{MINI}/open-source/InternVL3-78B_Coding_Math_CoT.json"): 4,
    ("STARE", f"{MINI}/open-source/InternVL3-78B_Physics_Chemistry_CoT.json"): 4,
    ("STARE", f"{MINI}/open-source/InternVL2_5_CoT.json"): 6,
    ("STARE", f"{MINI}/open-source/InternVL2_CoT.json"): 6,
    ("STARE", f"{MINI}/open-source/Qwen_CoT.json"): 6,
    ("STARE", f"{MINI}/open-source/Llava_CoT.json"): 8,
    ("STARE", f"{MINI}/close-source/gpt_CoT.json"): 4,
    ("STARE", f"{MINI}/close-source/claude_CoT.json"): 4,
    ("STARE", f"{MINI}/close-source/gemini_CoT.json"): 4,
    ("EMMA", "results/test-time-compute/pass@1/chatgpt-4o-latest_Chemistry_8.json"): 2,
    ("EMMA", "results/test-time-compute/pass@1/chatgpt-4o-latest_Math_16.json"): 2,
    ("EMMA", "results/test-time-compute/pass@1/chatgpt-4o-latest_Physics_8.json"): 2,
    ("M3CoT", "experiment/zero-shot/gemini/cot.jsonl"): 12,
    ("M3CoT", "experiment/zero-shot/gpt4v/direct.jsonl"): 12,
    ("M3CoT", "experiment/zero-shot/llava-13b/cot.jsonl"): 10,
    ("M3CoT", "experiment/zero-shot/llava-7b/cot.jsonl"): 10,
    ("M3CoT", "experiment/zero-shot/cogvlm/cot.jsonl"): 6,
    ("M3CoT", "experiment/zero-shot/instruct-blip-13b/cot.jsonl"): 5,
    ("M3CoT", "experiment/zero-shot/kosmos-2/cot.jsonl"): 5,
    ("EduChat-Math", "outputs/closed-source/Gemini_common.jsonl"): 14,
    ("EduChat-Math", "outputs/closed-source/Qwen_common.jsonl"): 14,
    ("EduChat-Math", "outputs/open-source/cogvlm_common.jsonl"): 14,
    ("EduChat-Math", "outputs/open-source/internlm_common.jsonl"): 14,
    ("EduChat-Math", "outputs/open-source/mcmd_common.jsonl"): 14,
    ("MMIQ", "mmiq/example_outputs/example_model_output/output_example.jsonl"): 10,
    ("MathVista-InternVL", "results/internVL2/output_internVL2-1b-mini.json"): 20,
    ("MultiMath", "eval_mathvista/outputs/pred_checkpoints_release.json"): 30,
    ("vlm-hallucination", "results_internvl2.json"): 20,
    ("vlm-hallucination", "results_llava.json"): 20,
    ("FLUFFY", "experiments/llava/aokvqa/run1/output.json"): 10,
}
"""For version 8: the next eligible rows in the same order that no label for version 7 names, 300 in all."""
