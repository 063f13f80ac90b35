"""The options of `vcsd eval` and `vcsd score`, in the groups that their help shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_ASKED, _READ = "Questions", "How answers are read"
_MODEL, _RESULT = "The model", "Results"

Model = Annotated[
    str | None,
    typer.Argument(
        help="A model folder, a hub id, a run, one of its checkpoints, or world for the shipped base. With --server: "
        "the model's name on the server."
    ),
]
Tsv = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Your own questions: a TSV file with the columns index, question, answer, image or image_path, and "
        "optionally A to Z for choices. May be repeated.",
        rich_help_panel=_ASKED,
    ),
]
Benchmarks = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="all (the paper's seven; default without --tsv), world, or a list such as BLINK,POPE,world/small. Also: "
        "MMBench_DEV_EN, MMMU_DEV_VAL, MME-RealWorld-Lite, AI2D_TEST, RealWorldQA, ScienceQA_VAL, ScienceQA_TEST.",
        rich_help_panel=_ASKED,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder of the benchmark files; default: $LMUData.", rich_help_panel=_ASKED),
]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Ask at most N questions per benchmark: a fixed random sample.", rich_help_panel=_ASKED
    ),
]
Style = Annotated[
    str, typer.Option(metavar="NAME", help="Prompt style: vlmevalkit, direct or cot.", rich_help_panel=_ASKED)
]
Jpeg75 = Annotated[
    bool, typer.Option("--jpeg75", help="Re-encode HRBench images as VLMEvalKit does.", rich_help_panel=_ASKED)
]
AllowUnknownData = Annotated[
    bool,
    typer.Option(
        "--allow-unknown-data",
        help="Accept benchmark files that differ from the published ones.",
        rich_help_panel=_ASKED,
    ),
]
Sampling = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Preset: paper, greedy, qwen3_vl or qwen3_5. To change values: greedy,max_new_tokens=512.",
        rich_help_panel=_MODEL,
    ),
]
Seeds = Annotated[str, typer.Option(metavar="N", help="One seed, or several: 0,1,2.", rich_help_panel=_MODEL)]
Thinking = Annotated[
    bool | None,
    typer.Option(help="Turn Qwen3.5's thinking on or off; default: as in its template.", rich_help_panel=_MODEL),
]
MaxPixels = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Shrink images larger than N pixels; default: the model's limit.", rich_help_panel=_MODEL
    ),
]
BatchSize = Annotated[
    int, typer.Option(min=1, metavar="N", help="Number of questions answered at once.", rich_help_panel=_MODEL)
]
Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="An OpenAI-compatible server: http://localhost:8000/v1. With --engine vllm: a vLLM server that has loaded "
        "MODEL and is sent token ids, http://localhost:8000.",
        rich_help_panel=_MODEL,
    ),
]
Engine = Annotated[
    str,
    typer.Option(metavar="NAME", help="Engine: transformers, or vllm (needs the extra vllm).", rich_help_panel=_MODEL),
]
Decode = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Decoding: plain, or contrast, which samples from the shaped target at twice the cost.",
        rich_help_panel=_MODEL,
    ),
]
Mode = Annotated[
    str, typer.Option(metavar="NAME", help="How answers are read: final, exact or judge.", rich_help_panel=_READ)
]
Rules = Annotated[
    str,
    typer.Option(
        metavar="MONTH", help="VLMEvalKit's rules for exact and judge: 2025-08 or 2026-06.", rich_help_panel=_READ
    ),
]
Judge = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="For --mode judge: the model that reads answers that the rules cannot.",
        rich_help_panel=_READ,
    ),
]
JudgeServer = Annotated[
    str | None, typer.Option(metavar="URL", help="The judge's server: http://localhost:8001/v1.", rich_help_panel=_READ)
]
JudgePreset = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How the judge is asked: strict or vlmevalkit. To change values: "
        "vlmevalkit,max_completion_tokens=8192; also thinking=off or temperature=off.",
        rich_help_panel=_READ,
    ),
]
MathVista = Annotated[
    str | None,
    typer.Option(
        "--mathvista",
        metavar="NAME",
        help="How MathVista's answers are compared: official, nearest (as its authors do, including guesses) or "
        "vlmevalkit.",
        rich_help_panel=_READ,
    ),
]
AllowFailed = Annotated[
    bool, typer.Option("--allow-failed", help="Count failed questions as wrong.", rich_help_panel=_READ)
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder for results; default: runs/eval/MODEL; with --compare, next to B.",
        rich_help_panel=_RESULT,
    ),
]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        metavar="A B",
        help="Compare two results without running a model. Each is a folder of vcsd eval or a scorecard.json. Writes a "
        "page next to B.",
        rich_help_panel=_RESULT,
    ),
]
Run = Annotated[Path, typer.Argument(help="The folder of an evaluation, with predictions.jsonl and asked.jsonl.")]
ScoredOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder for results; default: RUN/scored-MODE, or RUN/scored-judge-PRESET with a judge.",
        rich_help_panel=_RESULT,
    ),
]
