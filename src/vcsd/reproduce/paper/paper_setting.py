"""The paper's tables with its own models: train, export and evaluate each row, and print it next to the paper's.

    out/paper/qwen3_vl_2b/run        the training run; resumes from its latest checkpoint
    out/paper/qwen3_vl_2b/student    the exported student
    out/paper/qwen3_vl_2b/eval       answers and scorecard of the seven benchmarks

Whatever is complete is not repeated, so the same command resumes. With a launcher, each row is trained by
`LAUNCHER -m vcsd train ROW` on several GPUs; export and evaluation stay in this process. Training needs the recipe's
machine; `cost` says, from shapes alone, what that is and how long everything takes.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vcsd import run
from vcsd.checkpoint.export import export
from vcsd.checkpoint.whole_file import write_whole
from vcsd.config import load_recipe
from vcsd.config.shipped import shipped_names
from vcsd.errors import ConfigError, RunError, did_you_mean, shown
from vcsd.evaluation.asking.model_answerer import ModelAnswerer, folder_identity
from vcsd.evaluation.evaluate import Scoring, evaluate, load_questions
from vcsd.evaluation.reading.marking import Marking
from vcsd.evaluation.scoring.scorecard import load_scorecard
from vcsd.models.hub import load_to_answer, model_folder
from vcsd.models.processor import load_processor
from vcsd.models.shapes import SHAPES
from vcsd.reproduce.paper.paper_costs import cost_of
from vcsd.reproduce.paper.paper_curves import line_of, read_curve
from vcsd.reproduce.paper.paper_scores import COLUMNS, PAPER_SCORES
from vcsd.rollout.engine import TransformersEngine
from vcsd.terminal.stopping import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from vcsd.config import Recipe
    from vcsd.evaluation.evaluate import Asking
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.reproduce.paper.paper_costs import RowCost
    from vcsd.reproduce.paper.paper_curves import Curve
    from vcsd.types import JsonValue

_ABLATIONS = {
    "alpha": [f"alpha_{alpha}" for alpha in ("0", "0.5", "1.25", "1.5", "2")],
    "support": ["no_support", "support"],
    "divergence": ["jsd", "reverse_kl"],
    "control": ["noise", "blur", "no_image"],
    "anchor": ["no_anchor"],
}
EXPERIMENTS = ("main", *_ABLATIONS, "dynamics")

_SETTINGS = "recipe.json"
"""The resolved recipe of a row's student and answers, in its folder."""

_FREE = ("trainer.output_dir", "evaluation.data", "resume")
"""Where files are, and from where a run resumed: this may change between calls."""


def rows_of(experiment: str, models: Sequence[str]) -> list[str]:
    """The rows of a table: names of recipes, and `base/MODEL` for a model that is not trained."""
    unknown = [model for model in models if model not in SHAPES]
    if unknown:
        raise ConfigError([f"--models {unknown[0]!r} is not a model of the paper. {did_you_mean(unknown[0], SHAPES)}"])
    if experiment == "main":
        return [f"{kind}/{model}" for model in models or SHAPES for kind in ("base", "opsd_published", "paper")]
    if models and experiment in EXPERIMENTS:
        raise ConfigError([f"--models is for main: the paper's {experiment} trains Qwen3-VL-2B alone. Leave it out."])
    if experiment == "dynamics":
        return ["curves/opsd_published", "curves/vcsd"]
    if experiment not in _ABLATIONS:
        advice = did_you_mean(experiment, EXPERIMENTS)
        raise ConfigError([f"experiment {experiment!r} has no table with --setting paper. {advice}"])
    return ["paper/qwen3_vl_2b", *(f"ablations/{name}" for name in _ABLATIONS[experiment])]


@dataclass(frozen=True)
class PaperSetting:
    """Where results go, what is changed in every recipe, how the benchmarks are asked, and what starts the ranks."""

    out: Path
    asking: Asking
    data: Path | None = None
    overrides: tuple[str, ...] = ()
    launcher: str = ""
    """The command that starts the ranks of a training run, such as `torchrun --nproc-per-node 8`; none: one process."""

    def recipe(self, row: str) -> Recipe:
        """The recipe of a row, with its run folder."""
        name = row if row in shipped_names() else row.replace("base/", "paper/", 1)
        return load_recipe(name, self._changes(row))

    def _changes(self, row: str) -> list[str]:
        questions = [f"evaluation.data={self.data}"] if row.startswith("curves/") and self.data is not None else []
        return [*self.overrides, *questions, f"trainer.output_dir={self.out / row / 'run'}"]

    def score(self, row: str, say: Callable[[str], None]) -> Scorecard:
        """Train, export and evaluate a row, or read its scorecard if that is complete."""
        folder, recipe = self.out / row, self.recipe(row)
        self._refuse_other_settings(folder, _SETTINGS, recipe)
        finished = folder / "eval" / "scorecard.json"
        if finished.is_file():
            return load_scorecard(finished)
        model = recipe.model.path
        if not row.startswith("base/"):
            model = str(self._student(row, recipe, say))
        say(f"{row}: evaluating {model}")
        is_lenient = self.asking.allow_unknown_data or recipe.evaluation.allow_unknown_data
        asking = replace(self.asking, allow_unknown_data=is_lenient)
        loaded = load_questions("all", self.data, asking, allowed_by="--set evaluation.allow_unknown_data=true")
        _record(folder, recipe)
        (card,) = evaluate(
            loaded, _answerer(model, recipe), folder / "eval", asking, Scoring(Marking("final")), title=row
        )
        return card

    def _student(self, row: str, recipe: Recipe, say: Callable[[str], None]) -> Path:
        folder = self.out / row
        student, unfinished = folder / "student", folder / "student-unfinished"
        if not student.is_dir():
            say(f"training in {folder / 'run'}")
            if self.launcher:
                launch([*shlex.split(self.launcher), "-m", "vcsd", "train", row, *self._changes(row)])
            else:
                run.train(run.load(recipe))
        self._refuse_other_settings(folder, "run/config.json", recipe)  # a finished run is only opened
        if not student.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
            export(folder / "run", unfinished)
            _record(folder, recipe)
            unfinished.rename(student)
        return student

    def _refuse_other_settings(self, folder: Path, record: str, recipe: Recipe) -> None:
        """Raise a ConfigError if a row was made with other settings than those asked for.

        A key that was not recorded is of a later version: it counts only if it was asked for, or is one of the
        trainer's, which are recorded wherever they are set.
        """
        if not (folder / record).is_file():
            return
        try:
            made = _settings((folder / record).read_text(encoding="utf-8"))
        except (ValueError, AttributeError):
            raise ConfigError([f"{folder / record} is damaged. Restore it, or remove {folder}."]) from None
        asked = _settings(recipe.to_json())
        given = tuple(override.partition("=")[0].strip() for override in self.overrides)
        for key in [*asked, *(key for key in made if key not in asked)]:
            is_known = key in made and key in asked
            is_asked = any(f"{name}.".startswith(f"{key}.") or f"{key}.".startswith(f"{name}.") for name in given)
            if key in _FREE or not (is_known or is_asked or key.startswith("trainer.")):
                continue
            if made.get(key) != asked.get(key):
                raise ConfigError(
                    [
                        f"{folder} was made with {key} = {shown(made.get(key))}, not "
                        f"{shown(asked.get(key))}. Give the same --set, or another --out, or remove that folder."
                    ]
                )

    def cost(self, row: str) -> RowCost:
        """What a row needs, projected from shapes."""
        return cost_of(row, self.recipe(row), self.asking.sampling.max_new_tokens)

    def curve(self, row: str) -> Curve:
        """The evaluations during the training of a row."""
        return read_curve(self.out / row / "run")


def _record(folder: Path, recipe: Recipe) -> None:
    """Write what a row is made with, once. A kill while writing leaves no file."""
    path = folder / _SETTINGS
    if not path.is_file():
        write_whole(path, recipe.to_json())


def _settings(text: str) -> dict[str, JsonValue]:
    """The values of a recipe in JSON: by key, or by section and key.

    >>> _settings('{"offload": false, "model": {"path": "m", "chat_template_kwargs": {}}}')
    {'offload': False, 'model.path': 'm', 'model.chat_template_kwargs': {}}
    """
    settings: dict[str, JsonValue] = {}
    for name, value in json.loads(text).items():
        inner = {f"{name}.{key}": entry for key, entry in value.items()} if isinstance(value, dict) else {name: value}
        settings |= inner
    return settings


def refuse_launcher(launcher: str) -> None:
    """Raise a ConfigError for a launcher that cannot be started, before anything is trained."""
    if not launcher:
        return
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise ConfigError([f"--launcher {launcher!r} cannot be read: {error}. Write it as in a shell."]) from error
    if not words:
        raise ConfigError(["--launcher is blank. Give a command such as 'torchrun --nproc-per-node 8'."])
    if shutil.which(words[0]) is None:
        raise ConfigError([f"--launcher: {words[0]} cannot be started: it was not found. Is it installed?"])


def launch(command: Sequence[str]) -> None:
    """Run a command to its end. Raise an error if it cannot be found or fails.

    A signal that stops this process stops the command, which may save first.
    """
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        raise ConfigError(
            [f"--launcher: {command[0]} cannot be started: {error.strerror}. Is it installed?"]
        ) from error
    try:
        code = process.wait()
    except KeyboardInterrupt as stop:
        if isinstance(stop, Stopped) and stop.signal == signal.SIGTERM:  # Ctrl-C reaches the command by itself
            process.terminate()
        process.wait()
        raise
    if code:
        raise RunError(
            f"`{shlex.join(command)}` ended with code {code}; its messages are above. The same command resumes."
        )


def _answerer(model: str, recipe: Recipe) -> ModelAnswerer:
    """Load a model into this process: in bfloat16 with CUDA graphs on a GPU, in float32 on a CPU."""
    folder = model_folder(model)
    processor = load_processor(folder, min_pixels=recipe.model.min_pixels, max_pixels=recipe.model.max_pixels)
    weights = load_to_answer(folder)
    is_cuda = weights.device.type == "cuda"
    engine = TransformersEngine(weights, tokenizer=processor.tokenizer, use_graph=is_cuda, keeps_broken=True)
    switches = dict(recipe.model.chat_template_kwargs)
    return ModelAnswerer(engine, processor, name=folder_identity(folder), chat_template_kwargs=switches)


def table(rows: Sequence[str], cards: Sequence[Scorecard]) -> Iterator[str]:
    """Our scores of each row in percent with the share of unread answers, and below them the paper's scores."""
    yield f"{'':32}" + "".join(f"{name[:10]:>11}" for name in (*COLUMNS, "Acc", "unread"))
    for row, card in zip(rows, cards, strict=True):
        scores = [card.benchmarks[name].entry if name in card.benchmarks else None for name in COLUMNS]
        yield line_of(row, (*scores, card.acc, card.share_unread))
        if row in PAPER_SCORES:
            yield line_of("  paper", PAPER_SCORES[row])
