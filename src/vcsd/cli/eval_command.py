"""`vcsd eval`: scores a model, or compares two results. Heavy imports wait until the command runs."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from vcsd.errors import ConfigError
from vcsd.terminal import say, show_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vcsd.evaluation.asking.ask import Answerer
    from vcsd.evaluation.reading.marking import Marking
    from vcsd.evaluation.scoring.scorecard import Scorecard


def eval(  # noqa: A001, PLR0913, PLR0917  the command's name; one argument for each option
    model: Annotated[
        str | None, typer.Argument(help="A model folder or hub id; with --server, the model's name there.")
    ] = None,
    benchmarks: Annotated[str, typer.Option(help="all, world, or a list such as BLINK,world/small.")] = "all",
    data: Annotated[Path | None, typer.Option(help="Folder of the benchmark files; default: $LMUData.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results; default: runs/eval/MODEL.")] = None,
    style: Annotated[str, typer.Option(help="Prompt style: vlmevalkit, direct or cot.")] = "vlmevalkit",
    mode: Annotated[str, typer.Option(help="How answers are read: final, exact or judge.")] = "final",
    rules: Annotated[str, typer.Option(help="VLMEvalKit's rules for exact and judge: 2025-08 or 2026-06.")] = "2026-06",
    sampling: Annotated[
        str, typer.Option(help="paper or greedy, with changes: paper,temperature=0.7,max_new_tokens=512.")
    ] = "paper",
    seeds: Annotated[str, typer.Option(help="One seed, or several: 0,1,2.")] = "0",
    server: Annotated[str | None, typer.Option(help="An OpenAI-compatible server: http://localhost:8000/v1.")] = None,
    judge: Annotated[str | None, typer.Option(help="For --mode judge: reads what the rules cannot.")] = None,
    judge_server: Annotated[str | None, typer.Option(help="The judge's server: http://localhost:8001/v1.")] = None,
    limit: Annotated[int | None, typer.Option(help="Ask at most N questions per benchmark, spread evenly.")] = None,
    thinking: Annotated[bool | None, typer.Option(help="Qwen3.5's thinking; default: as in its template.")] = None,
    max_pixels: Annotated[int | None, typer.Option(help="Reduce larger images; default: the model's limit.")] = None,
    jpeg75: Annotated[bool, typer.Option("--jpeg75", help="Re-encode HRBench images as VLMEvalKit does.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Questions answered at a time.")] = 64,
    allow_unknown_data: Annotated[
        bool, typer.Option("--allow-unknown-data", help="Accept files that are not the published ones.")
    ] = False,
    allow_failed: Annotated[bool, typer.Option("--allow-failed", help="Count failed questions as wrong.")] = False,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Compare two results, A and B, without asking a model.")
    ] = None,
) -> None:
    """Ask a model the questions of benchmarks and score its answers. The same command resumes an interrupted run.

    Example: `vcsd eval Qwen/Qwen3-VL-2B-Instruct --benchmarks VStarBench,BLINK --data LMUData`

    Then: `vcsd eval --compare runs/eval/base runs/eval/trained`
    """
    if compare is not None:
        _compare(*compare, model, out)
        return
    if model is None:
        raise ConfigError(["MODEL is missing. Pass a model folder or a hub id: vcsd eval MODEL --data DIR."])
    show_log()
    from vcsd.evaluation.asking.presets import parse_sampling
    from vcsd.evaluation.evaluate import Asking, Scoring, evaluate, load_questions

    asking = Asking(style, parse_sampling(sampling), _seeds(seeds), limit, jpeg75, allow_unknown_data)
    folder = out or Path("runs/eval") / Path(model.rstrip("/")).name
    scoring = Scoring(_marking(mode, rules, judge, judge_server, folder), allow_failed)
    switches = {} if thinking is None else {"enable_thinking": thinking}
    with _resumable():
        remote = None if server is None else _server(server, model, switches, max_pixels, batch_size)
        loaded = load_questions(benchmarks, data, asking)
        answerer = remote or _local(model, switches, max_pixels, batch_size)
        cards = evaluate(loaded, answerer, folder, asking, scoring, title=model)
    _show(cards, folder)


@contextmanager
def _resumable() -> Iterator[None]:
    """Tell a user who presses Ctrl-C that the answers are kept."""
    try:
        yield
    except KeyboardInterrupt:
        say("Stopped. Answers so far are kept; the same command resumes.", to_stderr=True)
        raise


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise ConfigError([f"seeds = {text!r} is not a list of numbers such as 0,1,2."]) from error


def _marking(mode: str, rules: str, judge: str | None, server: str | None, folder: Path) -> Marking:
    from vcsd.evaluation.asking.chat import ChatClient
    from vcsd.evaluation.reading.judge import Judge
    from vcsd.evaluation.reading.marking import Marking

    if mode != "judge":
        if judge is not None or server is not None:
            raise ConfigError([f"--judge and --judge-server are for --mode judge, but the mode is {mode!r}."])
        return Marking(mode, rules)
    if judge is None or server is None:
        raise ConfigError(
            ["--mode judge needs --judge MODEL and --judge-server URL. Without a judge, use --mode final."]
        )
    client = ChatClient(server, api_key=os.environ.get("VCSD_JUDGE_KEY"))
    return Marking(mode, rules, Judge(client, judge, cache=folder / "judge.jsonl"))


def _local(model: str, switches: Mapping[str, object], max_pixels: int | None, batch_size: int) -> Answerer:
    """Load a model into this process: in bfloat16 with CUDA graphs on a GPU, in float32 on a CPU."""
    import torch

    from vcsd.evaluation.asking.model_answerer import ModelAnswerer, folder_identity
    from vcsd.models.hub import load_model, model_folder
    from vcsd.models.processor import load_processor
    from vcsd.rollout.engine import TransformersEngine

    folder = model_folder(model, key="model")
    is_cuda = torch.cuda.is_available()
    dtype = torch.bfloat16 if is_cuda else torch.float32
    processor, weights = load_processor(folder, max_pixels=max_pixels), load_model(folder, dtype)
    weights.to("cuda" if is_cuda else "cpu")
    engine = TransformersEngine(weights.eval(), tokenizer=processor.tokenizer, use_graph=is_cuda, keeps_broken=True)
    name = folder_identity(folder)
    return ModelAnswerer(engine, processor, name=name, chat_template_kwargs=switches, batch_size=batch_size)


def _server(url: str, model: str, switches: Mapping[str, object], max_pixels: int | None, batch_size: int) -> Answerer:
    from vcsd.evaluation.asking.chat import ChatClient
    from vcsd.evaluation.asking.server_answerer import ServerAnswerer

    if max_pixels is not None:
        raise ConfigError(["--max-pixels has no effect on a server. Start vLLM with --mm-processor-kwargs instead."])
    client = ChatClient(url, api_key=os.environ.get("VCSD_API_KEY"))
    return ServerAnswerer(client, model, chat_template_kwargs=switches, concurrency=batch_size)


def _show(cards: Sequence[Scorecard], folder: Path) -> None:
    from vcsd.evaluation.scoring.compare import over_seeds
    from vcsd.evaluation.scoring.terminal_tables import remarks, score_table, seeds_table

    titles = {name: score.title for name, score in cards[0].benchmarks.items()}
    Console().print(score_table(cards[0]) if len(cards) == 1 else seeds_table(over_seeds(cards), titles))
    for line in remarks(cards[0]):
        say(line, style="dim")
    say(f"scorecard.json and report.html are in {folder}.")


def _compare(first: Path, second: Path, model: str | None, out: Path | None) -> None:
    import json
    from dataclasses import asdict

    from vcsd.evaluation.scoring.compare import compare
    from vcsd.evaluation.scoring.scorecard import load_scorecard
    from vcsd.evaluation.scoring.terminal_tables import comparison_table

    if model is not None:
        raise ConfigError([f"--compare reads two results and does not ask {model!r}. Omit the model."])
    paths = [path / "scorecard.json" if path.is_dir() else path for path in (first, second)]
    comparison = compare(*(load_scorecard(path) for path in paths))
    Console().print(comparison_table(comparison, *_short_names(first, second)))
    for key, (before, after) in comparison.made_differently.items():
        say(f"{key}: {_brief(before)} -> {_brief(after)}", style="dim")
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / "comparison.json").write_text(json.dumps(asdict(comparison), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError([f"the comparison cannot be written: {error}. Choose another folder (--out)."]) from error


def _short_names(first: Path, second: Path) -> tuple[str, str]:
    names = tuple(path.parent.name if path.suffix == ".json" else path.name for path in (first, second))
    return (names[0], names[1]) if names[0] != names[1] else ("A", "B")


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
