"""`vcsd eval` and `vcsd score`: score a model or its finished answers, or compare two results.

Heavy imports wait until the command runs.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer  # noqa: TC002  typer reads the annotation of the context when the command is built
from rich.console import Console

from vcsd.checkpoint.whole_file import read_object, write_whole
from vcsd.cli import eval_options as options  # noqa: TC001  typer reads them when the command is built
from vcsd.errors import ConfigError
from vcsd.terminal import say, say_prose, show_log
from vcsd.terminal.stopping import exit_code_of, how_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from transformers import PreTrainedModel

    from vcsd.evaluation.asking.ask import Answerer
    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.benchmarks.loading import LoadedBenchmark
    from vcsd.evaluation.evaluate import Asking
    from vcsd.evaluation.reading.marking import Marking
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.rollout.fixed.proven_answers import PairAnswers, ProvenAnswers
    from vcsd.rollout.fixed.served_answers import ServedAnswers


def eval(  # noqa: A001, PLR0913, PLR0917  the command's name; one argument for each option
    context: typer.Context,
    model: options.Model = None,
    tsv: options.Tsv = None,
    benchmarks: options.Benchmarks = None,
    data: options.Data = None,
    limit: options.Limit = None,
    style: options.Style = "vlmevalkit",
    jpeg75: options.Jpeg75 = False,
    allow_unknown_data: options.AllowUnknownData = False,
    sampling: options.Sampling = "paper",
    seeds: options.Seeds = "0",
    thinking: options.Thinking = None,
    max_pixels: options.MaxPixels = None,
    batch_size: options.BatchSize = 64,
    server: options.Server = None,
    engine: options.Engine = "transformers",
    decode: options.Decode = "plain",
    mode: options.Mode = "final",
    rules: options.Rules = "2026-06",
    judge: options.Judge = None,
    judge_server: options.JudgeServer = None,
    judge_preset: options.JudgePreset = "strict",
    allow_failed: options.AllowFailed = False,
    out: options.Out = None,
    compare: options.Compare = None,
) -> None:
    """Ask a model questions and score its answers. The same command resumes an interrupted run.

    Example: `vcsd eval runs/first --tsv my.tsv`

    Benchmarks: `vcsd eval Qwen/Qwen3-VL-2B-Instruct --benchmarks VStarBench,BLINK --data LMUData`. For several answers
    to each question, add `--sampling qwen3_vl --seeds 0,1,2,3`

    Then: `vcsd eval --compare runs/eval/base runs/eval/trained`
    """
    if compare is not None:
        _refuse_asking(context, model)
        _compare(*compare, out)
        return
    if model is None:
        raise ConfigError(["MODEL is missing. Pass a folder, a hub id or a run: vcsd eval MODEL --tsv my.tsv."])
    show_log()
    from vcsd.evaluation.asking.presets import parse_sampling
    from vcsd.evaluation.evaluate import Asking, Scoring, evaluate

    asking = Asking(style, parse_sampling(sampling), _seeds(seeds), limit, jpeg75, allow_unknown_data)
    folder = out or _default_folder(model, decode, engine)
    marking = marking_of(mode, rules, judge, judge_server, judge_preset, folder)
    switches = {} if thinking is None else {"enable_thinking": thinking}
    with resumable():
        asks_chat = server is not None and engine != "vllm"
        _check_engine_options(decode, engine, server)
        _refuse_missing_model(model, is_remote=asks_chat)
        remote = _server_answerer(str(server), model, switches, max_pixels, batch_size) if asks_chat else None
        loaded, suites = _questions(tsv or [], benchmarks, data, asking)
        answerer = remote or _local_answerer(model, switches, max_pixels, batch_size, decode, engine, server)
        cards = evaluate(loaded, answerer, folder, asking, Scoring(marking, allow_failed, suites), title=model)
    show_scores(cards, folder, marking)


def _default_folder(model: str, decode: str, engine: str) -> Path:
    name = name_of(model) + ("-contrast" if decode == "contrast" else "")
    return Path("runs/eval") / (f"{name}-vllm" if engine == "vllm" else name)


def name_of(model: str) -> str:
    """Return the last part of a model's path or id. "." and ".." are resolved first.

    >>> name_of("runs/first/"), name_of("Qwen/Qwen3-VL-2B-Instruct"), name_of(".") == Path.cwd().name
    ('first', 'Qwen3-VL-2B-Instruct', True)
    """
    name = Path(model.rstrip("/")).name
    return Path(model).resolve().name if name in ("", "..") else name


def _questions(
    files: Sequence[Path], benchmarks: str | None, data: Path | None, asking: Asking
) -> tuple[list[LoadedBenchmark], dict[str, Benchmark]]:
    """Load questions from files and benchmarks; from all benchmarks if neither is given."""
    from vcsd.evaluation.benchmarks.own_tsv import load_own_tsvs
    from vcsd.evaluation.evaluate import load_questions

    loaded, suites = load_own_tsvs(files, style=asking.style, limit=asking.limit)
    for questions in loaded:
        say_prose(questions.report.line())
    if benchmarks is not None or not files:
        loaded += load_questions(benchmarks or "all", data, asking)
    return loaded, suites


@contextmanager
def resumable(kept: str = "Answers") -> Iterator[None]:
    """When a signal stops the command, print that the same command resumes, and exit."""
    try:
        yield
    except KeyboardInterrupt as stop:
        say(f"{how_stopped(stop)} {kept} so far are kept; the same command resumes.", to_stderr=True)
        sys.exit(exit_code_of(stop))


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise ConfigError([f"seeds = {text!r} is not a list of numbers such as 0,1,2."]) from error


def marking_of(mode: str, rules: str, judge: str | None, server: str | None, preset: str, folder: Path) -> Marking:
    """Build the Marking, which reads answers, from a command's options."""
    from vcsd.evaluation.asking.judge_client import JudgeClient
    from vcsd.evaluation.reading.judging.judge import Judge
    from vcsd.evaluation.reading.judging.judge_presets import parse_judge_preset
    from vcsd.evaluation.reading.marking import Marking

    if mode != "judge":
        if judge is not None or server is not None or preset != "strict":
            problem = f"--judge, --judge-server and --judge-preset are for --mode judge, but the mode is {mode!r}."
            raise ConfigError([f"{problem} Set it, or leave them out."])
        return Marking(mode, rules)
    if judge is None or server is None:
        raise ConfigError(
            ["--mode judge needs --judge MODEL and --judge-server URL. Without a judge, use --mode final."]
        )
    chosen, client = parse_judge_preset(preset), JudgeClient(server, api_key=os.environ.get("VCSD_JUDGE_KEY"))
    return Marking(mode, rules, Judge(client, judge, preset=chosen, cache=folder / "judge.jsonl"))


def _check_engine_options(decode: str, engine: str, server: str | None) -> None:
    """Raise a ConfigError for values of --decode, --engine and --server that cannot be used, alone or together."""
    from vcsd.rollout.vllm.server_client import check_url

    if decode not in ("plain", "contrast"):
        raise ConfigError([f"--decode {decode!r} is not a choice. Choose plain or contrast."])
    if decode == "contrast" and server is not None:
        raise ConfigError(["--decode contrast compares two views at every token; a server cannot. Omit --server."])
    if engine not in ("transformers", "vllm"):
        raise ConfigError([f"--engine {engine!r} is not a choice. Choose transformers or vllm."])
    if engine == "vllm" and server is not None:
        check_url(server, "--server")


def _local_answerer(
    model: str,
    switches: Mapping[str, object],
    max_pixels: int | None,
    batch_size: int,
    decode: str,
    engine_name: str,
    server: str | None,
) -> Answerer:
    """Load a model into this process: in bfloat16 with CUDA graphs on a GPU, in float32 on a CPU.

    If a vLLM server answers, the model stays on the CPU: it only checks the server.
    """
    from vcsd.evaluation.asking.model_answerer import ModelAnswerer, folder_identity
    from vcsd.models.hub import load_to_answer
    from vcsd.models.processor import load_processor
    from vcsd.rollout.contrast_engine import ContrastEngine
    from vcsd.rollout.engine import TransformersEngine

    with _model_files(model) as folder:
        processor = load_processor(folder, max_pixels=max_pixels)
        weights = load_to_answer(folder, device=None if server is None else "cpu")
        name = folder_identity(folder)
        if engine_name == "vllm":
            fast = _vllm(model, weights, folder, processor.tokenizer, decode, server)
            return ModelAnswerer(fast, processor, name=name, chat_template_kwargs=switches, batch_size=batch_size)
    engine_class = ContrastEngine if decode == "contrast" else TransformersEngine
    is_cuda = weights.device.type == "cuda"
    engine = engine_class(weights, tokenizer=processor.tokenizer, use_graph=is_cuda, keeps_broken=True)
    return ModelAnswerer(engine, processor, name=name, chat_template_kwargs=switches, batch_size=batch_size)


def _vllm(
    model: str, weights: PreTrainedModel, folder: Path, tokenizer: object, decode: str, server: str | None
) -> ProvenAnswers | PairAnswers | ServedAnswers:
    """Start vLLM in this process, or use the server that has loaded the model."""
    from vcsd.method import METHODS
    from vcsd.rollout.fixed.proven_answers import ProvenAnswers
    from vcsd.rollout.fixed.served_answers import ServedAnswers
    from vcsd.rollout.vllm.in_process import import_vllm
    from vcsd.rollout.vllm.server_client import ServerClient

    if server is not None:
        import_vllm()  # images are prepared with its code
        return ServedAnswers(weights, model, ServerClient(server, key="--server"), tokenizer=tokenizer)
    contrast = METHODS["vcsd"] if decode == "contrast" else None
    proven = ProvenAnswers(weights, folder, weights.dtype, tokenizer=tokenizer, contrast=contrast)
    return proven if contrast is None else proven.for_pairs()


def _refuse_missing_model(model: str, *, is_remote: bool) -> None:
    """Raise a ConfigError for a mistyped folder before loading questions, which may take minutes."""
    from vcsd.inspect.opened import WORLD
    from vcsd.models.hub import refuse_missing_path

    if not is_remote and model != WORLD:
        refuse_missing_path(model, key="model")


@contextmanager
def _model_files(model: str) -> Iterator[Path]:
    """Yield a model's folder. A run's student is exported to a temporary one."""
    from vcsd.checkpoint.export import export, is_run, warn_of_rounding
    from vcsd.inspect.opened import folder_of
    from vcsd.publish.described_export import warn_of_collapse

    if not is_run(Path(model)):
        yield folder_of(model)
        return
    with TemporaryDirectory(prefix="vcsd-student-") as folder:
        checkpoint = export(Path(model), Path(folder) / "student")
        say(f"Asking the student of {checkpoint}, as vcsd export writes it.")
        warn_of_collapse(checkpoint)
        warn_of_rounding(checkpoint)
        yield Path(folder) / "student"


def _server_answerer(
    url: str, model: str, switches: Mapping[str, object], max_pixels: int | None, batch_size: int
) -> Answerer:
    from vcsd.evaluation.asking.chat import ChatClient
    from vcsd.evaluation.asking.server_answerer import ServerAnswerer

    if max_pixels is not None:
        raise ConfigError(["--max-pixels has no effect on a server. Start vLLM with --mm-processor-kwargs instead."])
    client = ChatClient(url, api_key=os.environ.get("VCSD_API_KEY"))
    return ServerAnswerer(client, model, chat_template_kwargs=switches, concurrency=batch_size)


def score(  # noqa: PLR0913, PLR0917 - typer reads options from the signature
    run: options.Run,
    mode: options.Mode = "final",
    rules: options.Rules = "2026-06",
    judge: options.Judge = None,
    judge_server: options.JudgeServer = None,
    judge_preset: options.JudgePreset = "strict",
    mathvista: options.MathVista = None,
    allow_failed: options.AllowFailed = False,
    out: options.ScoredOut = None,
) -> None:
    """Score the answers of a finished evaluation again, without a model: in another mode or with another judge.

    Example: `vcsd score runs/eval/base --mode exact`

    With a judge: `vcsd score runs/eval/base --mode judge --judge MODEL --judge-server http://localhost:8001/v1`
    """
    from dataclasses import replace

    from vcsd.evaluation.benchmarks import mathvista as mathvista_benchmark
    from vcsd.evaluation.rescore import rescore

    marking = replace(marking_of(mode, rules, judge, judge_server, judge_preset, run), mathvista=mathvista)
    preset = "" if marking.judge is None else f"-{marking.judge.preset.name}"
    preset += "" if mathvista is None else f"-{mathvista}"
    folder = run / f"scored-{mode}{preset}" if out is None else out
    with resumable("Replies of the judge" if marking.judge else "Answers"):
        cards = rescore(run, marking, folder, allow_failed=allow_failed)
    show_scores(cards, folder, marking)
    if mathvista is not None and mathvista_benchmark.BENCHMARK.name not in cards[0].benchmarks:
        say_prose(f"--mathvista {mathvista} changed nothing: {run} has no answers to MathVista.", style="yellow")


def show_scores(cards: Sequence[Scorecard], folder: Path, marking: Marking) -> None:
    """Print the scorecards (one per seed), the answers on which the judge failed, and where the files are."""
    from vcsd.evaluation.evaluate import SEEDS
    from vcsd.evaluation.scoring.compare import over_seeds
    from vcsd.evaluation.scoring.terminal_tables import remarks_on_seeds, score_table, seeds_table, several_table

    titles = {name: score.title for name, score in cards[0].benchmarks.items()}
    Console().print(score_table(cards[0]) if len(cards) == 1 else seeds_table(over_seeds(cards), titles))
    if len(cards) > 1:
        measures = read_object(folder / SEEDS)["several_answers"]
        Console().print(several_table({name: measures[name] for name in titles}, titles))
    for line in remarks_on_seeds(cards):
        say_prose(line, style="dim")
    _show_failures(marking)
    of_seeds = f"seeds.json is in {folder}; " if len(cards) > 1 else ""
    places = " and ".join(str(folder / f"seed-{card.made_with['seed']}") for card in cards) if of_seeds else folder
    say(f"{of_seeds}scorecard.json and report.html are in {places}.")


def _show_failures(marking: Marking) -> None:
    """Print the answers on which the judge failed."""
    if marking.judge is not None:
        for line in marking.judge.failure_lines():
            say_prose(line, style="yellow")


def _refuse_asking(context: typer.Context, model: str | None) -> None:
    """Raise a ConfigError for a model or options that --compare would ignore."""
    if model is not None:
        raise ConfigError([f"--compare reads two results and does not ask {model!r}. Omit the model."])
    sources = {option: context.get_parameter_source(str(option.name)) for option in context.command.params}
    given = [option.opts[0] for option, source in sources.items() if source is not None and source.name in _GIVEN]
    ignored = ", ".join(name for name in given if name not in ("--compare", "--out"))
    if ignored:
        raise ConfigError([
            f"--compare reads two results as they were asked and scored; {ignored} would be ignored. Omit it, or score "
            "the results again first: vcsd score RUN."
        ])  # fmt: skip


_GIVEN = ("COMMANDLINE", "ENVIRONMENT")
"""The sources of an option's value that are not its default."""


def _compare(first: Path, second: Path, out: Path | None) -> None:
    from dataclasses import asdict

    from vcsd.evaluation.scoring.compare import compare, load_results
    from vcsd.evaluation.scoring.comparison_page import comparison_page
    from vcsd.evaluation.scoring.terminal_tables import comparison_remarks, comparison_table
    from vcsd.report.page import write_page

    cards = [load_results(path) for path in (first, second)]
    comparison, names = compare(*cards), _short_names(first, second)
    Console().print(comparison_table(comparison, *names))
    if names == ("A", "B"):
        say_prose(f"A is {first}, B is {second}.", style="dim")
    for line in comparison_remarks(comparison):
        say_prose(line, style="dim")
    folder = _beside(first, second) if out is None else out
    try:
        content = json.dumps(asdict(comparison), indent=2, allow_nan=False) + "\n"
        write_whole(folder / "comparison.json", content)
        write_page(comparison_page(comparison, cards[0], cards[1], names), folder / "report.html")
    except OSError as error:
        raise ConfigError([f"the comparison cannot be written: {error}. Choose another folder (--out)."]) from error
    say(f"comparison.json and report.html are in {folder}.")


def _beside(first: Path, second: Path) -> Path:
    """Return a folder next to the second result, named after both."""
    a, b = _folder_of(first), _folder_of(second)
    name = f"{b.name}-against-{a.name if a.name != b.name else f'{a.parent.name}-{a.name}'}"
    return b.parent / name


def _folder_of(result: Path) -> Path:
    folder = result.parent if result.suffix == ".json" else result
    return folder if folder.name and folder.parent.name else folder.resolve()


_LONGEST_NAME = 8
"""Longest name of a result that can head a column: the table must fit 80 columns."""


def _short_names(first: Path, second: Path) -> tuple[str, str]:
    names = (_folder_of(first).name, _folder_of(second).name)
    return names if names[0] != names[1] and max(map(len, names)) <= _LONGEST_NAME else ("A", "B")
