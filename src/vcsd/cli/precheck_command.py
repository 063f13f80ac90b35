"""`vcsd precheck`: can training help this model on this data? Heavy imports wait until the command runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from vcsd.checkpoint.whole_file import read_object, write_whole
from vcsd.cli.eval_command import name_of, resumable
from vcsd.cli.init_command import DATA_KEYS
from vcsd.errors import ConfigError, DataError, shown
from vcsd.terminal import plain, say, say_prose, show_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.inspect.opened import OpenedModel
    from vcsd.inspect.precheck.diagnosis import Diagnosis
    from vcsd.rollout.fixed.proven_answers import ProvenAnswers
    from vcsd.types import Example


_MAX_PATH = 200
"""Characters of a path that an error shows."""


def precheck(  # noqa: PLR0913, PLR0917  one argument for each option
    model: Annotated[str, typer.Argument(help="A model folder, a hub id, or world for the shipped base.")],
    data: Annotated[
        Path | None, typer.Option(help="Examples, as vcsd train reads them; default for world: its own data.")
    ] = None,
    num: Annotated[
        int, typer.Option(min=2, metavar="N", help="Number of examples to use, spread over the data.")
    ] = 200,
    out: Annotated[Path | None, typer.Option(help="Folder for results; default: runs/precheck/MODEL.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="The longest answer, in tokens.")] = 256,
    max_pixels: Annotated[
        int | None, typer.Option(metavar="N", help="Shrink images larger than N pixels; default: the model's limit.")
    ] = None,
    thinking: Annotated[
        bool | None, typer.Option(help="Turn Qwen3.5's thinking on or off; default: as in its template.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Engine: transformers, or vllm (needs the extra vllm).")] = "transformers",
    overrides: Annotated[list[str] | None, typer.Argument(help=DATA_KEYS)] = None,
) -> None:
    """Measure, without training, how much the image matters to a model and what training could gain.

    The same command resumes an interrupted check.

    Example: `vcsd precheck world --num 64`

    Other columns: `vcsd precheck MODEL --data FILE data.columns.prompt=Question data.columns.images=picture`
    """
    from vcsd.checkpoint.lock import only_process
    from vcsd.evaluation.asking.model_answerer import folder_identity
    from vcsd.inspect.opened import folder_of, open_model
    from vcsd.inspect.precheck.diagnosis import diagnose
    from vcsd.method import METHODS
    from vcsd.monitor.machine import hush_transformers

    if engine not in ("transformers", "vllm"):
        raise ConfigError([f"--engine {engine!r} is not a choice. Choose transformers or vllm."])
    show_log()
    hush_transformers()
    examples, unreadable = _examples(model, data, num, overrides or ())
    switches = {} if thinking is None else {"enable_thinking": thinking}
    opened = open_model(model, max_pixels=max_pixels, chat_template_kwargs=switches)
    folder = out or Path("runs/precheck") / name_of(model)
    model_files = folder_of(model)
    weights = folder_identity(model_files)
    asked = {"model": opened.name, "weights": weights, "data": None if data is None else str(data)}
    name, method = f"{weights} {max_pixels}", METHODS["vcsd"]
    with resumable(), only_process(folder):
        _refuse_others(folder, asked)
        vllm = _vllm(opened, model_files) if engine == "vllm" else None
        diagnosis = diagnose(opened, examples, folder, method, name=name, max_new_tokens=max_new_tokens, vllm=vllm)
        diagnosis = replace(diagnosis, skipped={**unreadable, **diagnosis.skipped})
        if diagnosis.examples:
            _write(diagnosis, examples, asked, folder)
    if not diagnosis.examples:
        first = next(iter(diagnosis.skipped.values()), "")
        raise ConfigError([f"none of the {len(diagnosis.skipped)} examples could be used: {first}"])
    _show(diagnosis)
    say(f"precheck.html and precheck.json are in {folder}.")


def _refuse_others(folder: Path, asked: Mapping[str, str | None]) -> None:
    """Raise a ConfigError if a folder holds the results of other weights or data, which would be overwritten."""
    before = {**asked, **read_object(folder / "precheck.json")}
    data = before["data"]
    other_data = "the world's own data" if data is None else f"the data {shown(data, _MAX_PATH)}"
    holds = {
        f"{shown(before['model'])}, or of other weights with the same name": before["weights"] != asked["weights"],
        other_data: _resolved(data) != _resolved(asked["data"]),
    }
    for results, are_others in holds.items():
        if are_others:
            raise ConfigError([
                f"{folder} holds the results of {results}. Choose another folder (--out), or move them."
            ])  # fmt: skip


def _resolved(data: str | None) -> Path | None:
    """Return the whole path of data, so that a relative one equals it."""
    return None if data is None else Path(data).resolve()


def _write(diagnosis: Diagnosis, examples: Sequence[Example], asked: Mapping[str, str | None], folder: Path) -> None:
    """Write the results as JSON and as a page."""
    from vcsd.inspect.precheck.diagnosis_page import diagnosis_json, diagnosis_page
    from vcsd.report.page import write_page

    numbers = {**asked, **diagnosis_json(diagnosis)}
    title = " on ".join(filter(None, (asked["model"], asked["data"])))
    write_whole(folder / "precheck.json", json.dumps(numbers, indent=2, allow_nan=False) + "\n")
    write_page(diagnosis_page(diagnosis, {one.id: one for one in examples}, title), folder / "precheck.html")


def _show_verdict(diagnosis: Diagnosis) -> None:
    """Print the verdict and, if it is a forecast, its grounds."""
    from vcsd.inspect.precheck.diagnosis_page import grounds, verdict

    say_prose(verdict(diagnosis))
    if diagnosis.decoding_gain() is not None:
        say("What the forecast rests on:")
        for ground in grounds():
            say_prose(f"- {ground}")


def _show(diagnosis: Diagnosis) -> None:
    """Print the statistics, the accuracies and contrasts of each category, and the verdict."""
    from vcsd.inspect.precheck.diagnosis_page import CATEGORY_COLUMNS, INTERVAL, categories_left, category_rows, rows_of

    table = Table(box=None, show_header=False, padding=(0, 1))
    for row in rows_of(diagnosis):
        table.add_row(*map(plain, row))
    Console().print(table)
    if rows := category_rows(diagnosis):
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        shown = [place for place, name in enumerate(CATEGORY_COLUMNS) if name != INTERVAL]  # for 80 columns
        for place in shown:
            name = CATEGORY_COLUMNS[place] or "category"
            table.add_column(name, justify="right" if place else "left", overflow="fold")
        for row in rows:
            table.add_row(*(plain(row[place]) for place in shown))
        Console().print(table)
        say(categories_left(diagnosis) or "The page also shows the intervals of the categories.")
    _show_verdict(diagnosis)


def _vllm(opened: OpenedModel, folder: Path) -> ProvenAnswers:
    """Start vLLM in this process, with the model's weights. The model stays loaded, because it scores the answers."""
    from vcsd.method import METHODS
    from vcsd.rollout.fixed.proven_answers import ProvenAnswers

    model = opened.model
    return ProvenAnswers(model, folder, model.dtype, tokenizer=opened.processor.tokenizer, contrast=METHODS["vcsd"])


def _examples(
    model: str, data: Path | None, num: int, overrides: Sequence[str]
) -> tuple[Sequence[Example], dict[str, str]]:
    """Return examples spread over the data, or the world's own, and the reason for each row that cannot be read."""
    from vcsd.config.recipe import build_data
    from vcsd.data import load_examples
    from vcsd.evaluation.benchmarks.loading import chosen_along
    from vcsd.inspect.opened import WORLD
    from vcsd.world.questions.examples import training_examples

    if data is None:
        if model != WORLD or overrides:
            raise ConfigError(["--data is missing. Only the model 'world' has data of its own."])
        return training_examples(num), {}
    source, examples, skipped = load_examples(**build_data(str(data), overrides).for_loading()), [], {}
    for index in chosen_along(range(len(source)), num):
        try:
            examples.append(source[index])
        except DataError as error:
            skipped[error.example_id] = error.message
    return examples, skipped
