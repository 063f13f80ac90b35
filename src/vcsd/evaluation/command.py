"""`vcsd eval`: the table row of a model, or the difference between two. Heavy imports wait until it is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.evaluation.marking import Marking
    from vcsd.evaluation.runner import Answerer
    from vcsd.evaluation.scorecard import Scorecard

API_KEY = "VCSD_API_KEY"
"""The environment variable that holds a server's key."""

JUDGE_KEY = "VCSD_JUDGE_KEY"
"""The one that holds the key of the judge's server."""


def eval(  # noqa: A001, PLR0913, PLR0917  the command's name; one argument for each option
    model: Annotated[
        str | None, typer.Argument(help="A model folder or hub id; with --server, the name it is served under.")
    ] = None,
    benchmarks: Annotated[str, typer.Option(help="all, world, or names with commas: BLINK,world/small.")] = "all",
    data: Annotated[Path | None, typer.Option(help="The folder of the benchmarks' files; else $LMUData.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where results go; by default runs/eval/MODEL.")] = None,
    style: Annotated[str, typer.Option(help="Prompt style: vlmevalkit, direct or cot.")] = "vlmevalkit",
    mode: Annotated[str, typer.Option(help="How answers are read: final, exact or judge.")] = "final",
    rules: Annotated[str, typer.Option(help="VLMEvalKit's rules for exact and judge: 2025-08 or 2026-06.")] = "2026-06",
    sampling: Annotated[
        str, typer.Option(help="paper or greedy, and changes: paper,temperature=0.7,max_new_tokens=512.")
    ] = "paper",
    seeds: Annotated[str, typer.Option(help="One seed, or several with commas: 0,1,2.")] = "0",
    server: Annotated[str | None, typer.Option(help="An OpenAI-compatible server: http://localhost:8000/v1.")] = None,
    judge: Annotated[str | None, typer.Option(help="For --mode judge: the model that reads what rules cannot.")] = None,
    judge_server: Annotated[str | None, typer.Option(help="Where it is served: http://localhost:8001/v1.")] = None,
    limit: Annotated[int | None, typer.Option(help="Ask so many questions per benchmark, spread evenly.")] = None,
    thinking: Annotated[bool | None, typer.Option(help="Qwen3.5's thinking, on or off; by default its own.")] = None,
    max_pixels: Annotated[
        int | None, typer.Option(help="Larger images are reduced; by default the model's own.")
    ] = None,
    jpeg75: Annotated[bool, typer.Option("--jpeg75", help="HRBench's images through JPEG, as VLMEvalKit.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Questions answered side by side.")] = 64,
    allow_unknown_data: Annotated[
        bool, typer.Option("--allow-unknown-data", help="Go on with files that are not the published ones.")
    ] = False,
    allow_failed: Annotated[bool, typer.Option("--allow-failed", help="Count failed questions as wrong.")] = False,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Two results to compare: what B scores above A. Nothing is asked.")
    ] = None,
) -> None:
    """Ask a model the questions of the seven benchmarks and score its answers. Started again, it goes on.

    Example: `vcsd eval Qwen/Qwen3-VL-2B-Instruct --benchmarks VStarBench,BLINK --data LMUData`

    Then: `vcsd eval --compare runs/eval/base runs/eval/trained`
    """
    if compare is not None:
        if model is not None:
            raise ConfigError([f"--compare reads two results; it does not ask {model!r}. Leave the model out."])
        _compare(*compare, out)
        return
    if model is None:
        raise ConfigError(["which model? Give a folder or hub id: vcsd eval MODEL --data DIR. See vcsd eval --help."])
    _show_log()
    from vcsd.evaluation.evaluate import Asking, Scoring, evaluate, load_questions
    from vcsd.evaluation.presets import parse_sampling

    asking = Asking(style, parse_sampling(sampling), _seeds(seeds), limit, jpeg75, allow_unknown_data)
    folder = out or Path("runs/eval") / Path(model.rstrip("/")).name
    scoring = Scoring(_marking(mode, rules, judge, judge_server, folder), allow_failed)
    switches = {} if thinking is None else {"enable_thinking": thinking}
    try:
        asked = None if server is None else _server(server, model, switches, max_pixels, batch_size)
        loaded = load_questions(benchmarks, data, asking)
        answerer = asked or _local(model, switches, max_pixels, batch_size)
        cards = evaluate(loaded, answerer, folder, asking, scoring, title=model)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped. Answers so far are kept; the same command goes on.", highlight=False)
        raise
    _show(cards, folder)


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise ConfigError([f"seeds = {text!r} are no numbers with commas between them, such as 0,1,2."]) from error


def _marking(mode: str, rules: str, judge: str | None, server: str | None, folder: Path) -> Marking:
    from vcsd.evaluation.chat import ChatClient
    from vcsd.evaluation.judge import Judge
    from vcsd.evaluation.marking import Marking

    if mode != "judge":
        if judge is not None or server is not None:
            raise ConfigError([f"--judge and --judge-server are for --mode judge, but the mode is {mode!r}."])
        return Marking(mode, rules)
    if judge is None or server is None:
        raise ConfigError(
            ["--mode judge needs --judge MODEL and --judge-server URL. Without a judge, use --mode final."]
        )
    client = ChatClient(server, api_key=os.environ.get(JUDGE_KEY))
    return Marking(mode, rules, Judge(client, judge, cache=folder / "judge.jsonl"))


def _local(model: str, switches: dict[str, Any], max_pixels: int | None, batch_size: int) -> Answerer:
    """A model in this process: in bfloat16 with replayed steps on a GPU, in float32 on a CPU."""
    import torch
    from transformers import AutoModelForImageTextToText

    from vcsd.evaluation.local import ModelAnswerer, folder_identity
    from vcsd.models.hub import model_folder
    from vcsd.models.processor import load_processor
    from vcsd.rollout.transformers import TransformersEngine

    folder = model_folder(model, key="model")
    is_cuda = torch.cuda.is_available()
    dtype = torch.bfloat16 if is_cuda else torch.float32
    try:
        processor = load_processor(folder, max_pixels=max_pixels)
        weights: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype)
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([f"{model} cannot be loaded: {error} Of a run, give what vcsd export writes."]) from error
    weights.to("cuda" if is_cuda else "cpu")
    engine = TransformersEngine(weights.eval(), tokenizer=processor.tokenizer, use_graph=is_cuda, keeps_broken=True)
    name = folder_identity(folder)
    return ModelAnswerer(engine, processor, name=name, chat_template_kwargs=switches, batch_size=batch_size)


def _server(url: str, model: str, switches: dict[str, Any], max_pixels: int | None, batch_size: int) -> Answerer:
    from vcsd.evaluation.chat import ChatClient
    from vcsd.evaluation.server import ServerAnswerer

    if max_pixels is not None:
        raise ConfigError(["--max-pixels is the server's affair: with vLLM, --mm-processor-kwargs when it starts."])
    client = ChatClient(url, api_key=os.environ.get(API_KEY))
    return ServerAnswerer(client, model, chat_template_kwargs=switches, concurrency=batch_size)


def _show(cards: Sequence[Scorecard], folder: Path) -> None:
    from vcsd.evaluation.compare import over_seeds
    from vcsd.evaluation.tables import remarks, score_table, seeds_table

    console = Console()
    titles = {name: score.title for name, score in cards[0].benchmarks.items()}
    console.print(score_table(cards[0]) if len(cards) == 1 else seeds_table(over_seeds(cards), titles))
    for line in remarks(cards[0]):
        console.print(line, style="dim", highlight=False)
    console.print(f"scorecard.json and report.html are in {folder}.", highlight=False, soft_wrap=True)


def _compare(first: Path, second: Path, out: Path | None) -> None:
    import json

    from vcsd.evaluation.compare import compare
    from vcsd.evaluation.scorecard import load_scorecard
    from vcsd.evaluation.tables import comparison_table

    paths = [path / "scorecard.json" if path.is_dir() else path for path in (first, second)]
    found = compare(*(load_scorecard(path) for path in paths))
    console = Console()
    console.print(comparison_table(found, *_short_names(first, second)))
    for key, (before, after) in found.made_differently.items():
        console.print(f"{key}: {_brief(before)} -> {_brief(after)}", style="dim", highlight=False)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / "comparison.json").write_text(json.dumps(found.to_json(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError([f"the comparison cannot be written: {error}. Choose another folder (--out)."]) from error


def _short_names(first: Path, second: Path) -> tuple[str, str]:
    names = tuple(path.parent.name if path.suffix == ".json" else path.name for path in (first, second))
    return (names[0], names[1]) if names[0] != names[1] else ("A", "B")


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _show_log() -> None:
    """Let what the package says reach the terminal: which files were found, how far the asking is."""
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("vcsd").setLevel(logging.INFO)
