"""Write the page about the emoji study from its result files, with the verdicts of `settle.py`.

    python -m vcsd.emoji.study.language_page docs/results/language_runs.json --out docs/results/language \\
        --page docs/results/language.md

Until all runs are finished the page says how many are, and nothing else. Files that are not of the list are named as
left out. The page is not edited by hand. Its picture is drawn beside it, if matplotlib is installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.emoji.study.sections.language_picture import draw_language
from vcsd.emoji.study.sections.language_tables import (
    changes_of_gates,
    gains_over_bases,
    gains_section,
    gates_section,
    paragraph,
    score_tables,
    settling_section,
)
from vcsd.emoji.study.sections.language_verdict import base_by_base, is_rounded, verdict_of_study, which_weights
from vcsd.emoji.study.sections.presence_by_answer import presence_by_answer
from vcsd.emoji.study.sections.seen_by_training import seen_by_training
from vcsd.emoji.study.sections.target_before_training import target_before_training
from vcsd.emoji.study.sections.watched_by_monitors import watched_by_monitors
from vcsd.emoji.study.set_aside import num_set_aside
from vcsd.emoji.study.settle import LEVEL, MARGIN
from vcsd.emoji.study.study_list import EmojiRun, OtherListError, StudyList, read_study
from vcsd.errors import ConfigError, install_command
from vcsd.terminal import exit_on_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from vcsd.emoji.study.sections.language_tables import Results


TITLES = {
    "language": "A real language model with true but skewed captions",
    "language_exported": "The same language model, measured as it is exported",
}

QUESTION = (
    "**Question:** Does VCSD help a small language model (135M) that learned to see from true captions of skewed "
    "scenes, in which a banana is always yellow? It sees a blue banana and still says yellow. VCSD trains it, without "
    "reference answers, towards what the picture makes more likely than a black one."
)
SECOND = "Here the model is measured as `vcsd export` writes it; [the first study](language.md) measured other weights."
"""What a study other than the first adds to the question."""


def read_results(
    listed: StudyList, out: Path, name: str = "language"
) -> tuple[dict[EmojiRun, dict[str, Any]], list[str]]:
    """Return the results that exist in the order of the list, and the names of the files that are not of this list.

    Raise a ConfigError if the results of a base come from different weights, or if a study other than the first has
    results of exams that did not round.
    """
    paths = {run: out / "cells" / f"{run.name}.json" for run in listed.runs}
    left_out = {path.name for path in (out / "cells").glob("*.json")} - {path.name for path in paths.values()}
    results = {}
    for run, path in paths.items():
        try:
            if (result := listed.read_result(path)) is not None:
                results[run] = result
        except OtherListError:
            left_out.add(path.name)
    if name != "language" and not is_rounded(results):
        raise ConfigError([f"{out} has results of exams without rounding. They belong to no list but the first."])
    for base in listed.bases:
        if len({result["base_weights"] for run, result in results.items() if run.base == base}) > 1:
            raise ConfigError([f"{out}: the results of {base} come from different weights. Keep those of one base."])
    return results, sorted(left_out)


def page(listed: StudyList, out: Path, name: str = "language") -> str:
    """Return the page. Rules and picture are named after the study."""
    results, left_out = read_results(listed, out, name)
    rules = f"preregistration_{name}.md"
    lines = [f"# {TITLES.get(name, name)}: results", ""]
    lines += paragraph(QUESTION if name == "language" else f"{QUESTION} {SECOND}")
    lines += [f"{len(results)} of {len(listed.runs)} planned runs are finished."]
    if len(results) == len(listed.runs):
        lines += [
            f"The rules were written before them, in [{rules}](../{rules}).",
            "",
            *paragraph(
                "A *base* is the model after it has learned to see, before VCSD. Its *prior*, what it says without "
                "looking, comes from true but skewed captions; it is not the language model's own. An *exam* asks all "
                "questions of a split, and the model answers greedily. *Unusual colours* are the two suites that "
                "should gain. A *gate* is any other suite: none must get worse. A run *breaks* a gate if it loses more "
                f"than {MARGIN:g} points and the sign test over the changed answers has p < {LEVEL:g}."
            ),
            *paragraph(
                "Accuracies are the percentage of right deciding words. There are "
                f"{len(listed.bases)} bases, with one run of each method: they say little about others."
            ),
            *verdict_of_study(listed, results),
            *which_weights(results),
            *base_by_base(listed, results),
            f"![VCSD minus the others on unusual colours, and its change on every other suite]({name}.png)",
            "",
            *gates_section(listed, results),
            *gains_section(listed, results),
            *settling_section(listed, results),
            *score_tables(results),
            *seen_by_training(results, out),
            *target_before_training(results),
            *presence_by_answer(results),
            *watched_by_monitors(results, out),
            *_how_made(listed, results, name),
        ]
    else:
        lines += ["Nothing else is shown before all of them are.", ""]
    lines += [*_left_out(left_out), *_lost(num_set_aside(out))]
    return "\n".join(lines).rstrip() + "\n"


def _how_made(listed: StudyList, results: Results, name: str) -> Iterator[str]:
    """The commands, the machine, and all that chance could depend on."""
    seeds = ", ".join(f"{run.base} {run.seed}" for run in results if (run.stage, run.variant) == ("test", "VCSD"))
    settling = next(run for run in results if run.stage == "dev" and run.trains)
    yield "## How this was made"
    yield ""
    yield "```bash"
    yield f"python -m vcsd.emoji.study.whole_study docs/results/{name}_runs.json --language smollm2 \\"
    yield f"  --sprites sprites.safetensors --bases bases --out runs/{name}"
    yield "make pages"
    yield "```"
    yield ""
    yield from paragraph(
        f"[The guide](../real_language.md#commands) says where the two inputs come from. List {listed.digest}, on "
        f"{_listed_once(result.get('hardware') for result in results.values())}, with "
        f"{_listed_once(_versions(result) for result in results.values())}. "
        f"Seeds of training: {seeds}; settling on {settling.base} with {settling.seed}. All studies ask the same "
        "questions on `dev` and on `test`, which depend on the suite and a number only; prompts ask about the same "
        "suites in the same order. The order of commits shows that the rules are older than the results in this "
        "repository; nobody else can check when runs were made. Training on a GPU does not repeat bit for bit."
    )


def _versions(result: Mapping[str, Any]) -> str:
    return ", ".join(f"{package} {version}" for package, version in result.get("versions", {}).items())


def _listed_once(values: Iterable[str | None]) -> str:
    return "; ".join(sorted({value for value in values if value})) or "a machine that no result names"


def _left_out(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield "## Left out"
        yield ""
        yield f"{len(names)} result files are of another list of runs and count nowhere on this page:"
        yield ""
        yield from (f"- {name}" for name in names)
        yield ""


def _lost(num: int) -> Iterator[str]:
    if num:
        yield "## Set aside"
        yield ""
        yield f"{num} results in `lost` are of bases whose weights were lost before all their runs were made. By the"
        yield "rules, they were set aside unread and count nowhere, and these bases started over."
        yield ""


def draw_picture(listed: StudyList, out: Path) -> Figure | None:
    """Draw the picture of the page; None before all runs are finished."""
    results, _ = read_results(listed, out)
    if len(results) < len(listed.runs):
        return None
    return draw_language(gains_over_bases(listed, results), changes_of_gates(listed, results))


def _write(listed: StudyList, out: Path, path: Path) -> None:
    """Write the page, and its picture beside it. Without matplotlib the picture stays as it is."""
    path.write_text(page(listed, out, path.stem), encoding="utf-8")
    try:
        figure = draw_picture(listed, out)
    except ImportError:
        sys.stdout.write(f"No picture: matplotlib is not installed. Install it: {install_command('eval')}.\n")
        return
    if figure is not None:
        figure.savefig(path.with_suffix(".png"), dpi=130)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.study.language_page", description="Write the page.")
    parser.add_argument("list", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="The folder of the results.")
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    with exit_on_error():
        _write(read_study(options.list), options.out, options.page)


if __name__ == "__main__":
    main()
