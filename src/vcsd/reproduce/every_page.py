"""Write every page and picture of a results folder from its files alone: no base and no GPU is needed.

    python -m vcsd.reproduce.every_page docs/results

The pages are those of the experiments, the claims, the planned runs (verdicts, doses, shipped bases, lag), the
calibration of the pre-check, the front page, and how the results were made. Numbers come from `cells/` and `cards/`;
nothing is run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, VcsdError, install_command
from vcsd.reproduce.experiments import EXPERIMENTS
from vcsd.reproduce.failures import failures_page, paper_dose_page, power_page, qwen3_5_page
from vcsd.reproduce.failures.failure_pictures import draw_failures
from vcsd.reproduce.failures.failure_runs import FAILURE_LIST, POWER_LIST, read_once, readable
from vcsd.reproduce.failures.precheck_left_out import left_out
from vcsd.reproduce.failures.worst_results import (
    at_paper_size,
    contrast_at_paper_size,
    on_opsd,
    precheck_on_new_bases,
    worst_results,
)
from vcsd.reproduce.judged.judged_claims import QWEN3_5_LIST
from vcsd.reproduce.judged.main_differences import draw_main_differences
from vcsd.reproduce.pages import precheck_page, precheck_picture
from vcsd.reproduce.pages.from_files import planned_bases, recorded_results
from vcsd.reproduce.pages.index import MAIN_PICTURE, index_page, with_page
from vcsd.reproduce.pages.plots import draw
from vcsd.reproduce.pages.provenance import MADE_PAGE, made_page
from vcsd.reproduce.pages.write_pages import claims_page, experiment_page, judged
from vcsd.reproduce.planned import dose_page, lag_page, so_far, verdict_page
from vcsd.reproduce.planned.paper_dose import PAPER_DOSE_LIST, PAPER_DOSE_PAGE
from vcsd.reproduce.planned.planned_plots import draw_doses, draw_verdicts
from vcsd.reproduce.planned.planned_results import LIST, planned_results

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.planned.planned_results import PlannedResults
    from vcsd.reproduce.results import Results


def page_texts(out: Path) -> dict[str, str]:
    """Build every text of a results folder, by file name. Experiments without a page get none."""
    if not (out / LIST).is_file() or not (out / lag_page.LIST).is_file():
        raise ConfigError([f"{out} has no {LIST} or no {lag_page.LIST}. Pass docs/results, or a copy of it."])
    results, runs = recorded_results(out, planned_bases(out)), planned_results(out)
    claims = judged(results)
    planned = {
        verdict_page.PAGE: verdict_page.verdict_page(runs, contrast_at_paper_size(out)),
        dose_page.PAGE: dose_page.dose_page(runs),
        so_far.PAGE: so_far.so_far_page(so_far.FinishedRuns(runs)),
        lag_page.PAGE: lag_page.lag_page(lag_page.lag_runs(out)),
        **_read_once(out, results, runs),
        precheck_page.PAGE: precheck_page.precheck_page(out, precheck_on_new_bases(out), left_out(out)),
        precheck_page.FILE: precheck_page.calibration_json(out, *_test_of_precheck(out, runs)),
    }
    return {
        **{
            f"{experiment.name}.md": experiment_page(experiment, results, _picture(out, experiment), coming=planned)
            for experiment in _with_page(out, results)
        },
        "claims.md": claims_page(results, on_opsd(runs), at_paper_size(out), coming=planned),
        "claims.json": json.dumps(claims, indent=1) + "\n",
        **planned,
        "README.md": index_page(results, claims, worst_results(out), coming={*planned, MAIN_PICTURE}),
        MADE_PAGE: made_page(with_page(results), results),
    }


def pictures(out: Path) -> dict[str, Callable[[], Figure | None]]:
    """What draws every picture of a results folder, by file name."""
    results, runs = recorded_results(out, planned_bases(out)), planned_results(out)

    def of(experiment: Experiment) -> Callable[[], Figure | None]:
        return lambda: draw(experiment, results)

    return {
        **{f"{experiment.name}.png": of(experiment) for experiment in _with_page(out, results)},
        verdict_page.PICTURE: lambda: draw_verdicts(runs),
        dose_page.PICTURE: lambda: draw_doses(runs),
        lag_page.PICTURE: lambda: lag_page.draw(lag_page.lag_runs(out)),
        **_pictures_read_once(out),
        MAIN_PICTURE: lambda: draw_main_differences(runs, _at_the_papers_dose(out)),
        precheck_page.PICTURE: lambda: precheck_picture.draw_precheck(out, _test_of_precheck(out, runs)[0]),
    }


def _read_once(out: Path, results: Results, earlier: PlannedResults) -> dict[str, str]:
    """The pages of lists that are read once, which a folder of other results does not have."""
    texts = {}
    if (out / FAILURE_LIST).is_file():
        texts[failures_page.PAGE] = failures_page.failures_page(read_once(out, FAILURE_LIST))
    if (out / POWER_LIST).is_file():
        texts[power_page.PAGE] = power_page.power_page(read_once(out, POWER_LIST), results)
    if (out / PAPER_DOSE_LIST).is_file():
        texts[PAPER_DOSE_PAGE] = paper_dose_page.paper_dose_page(read_once(out, PAPER_DOSE_LIST), earlier)
    if (out / QWEN3_5_LIST).is_file():
        texts[qwen3_5_page.PAGE] = qwen3_5_page.qwen3_5_page(read_once(out, QWEN3_5_LIST))
    return texts


def _pictures_read_once(out: Path) -> dict[str, Callable[[], Figure | None]]:
    """The pictures of lists that are read once."""
    drawn: dict[str, Callable[[], Figure | None]] = {}
    if (out / FAILURE_LIST).is_file():
        drawn[failures_page.PICTURE] = lambda: draw_failures(read_once(out, FAILURE_LIST))
        drawn[failures_page.DIFFERENCES] = lambda: failures_page.draw_kept(read_once(out, FAILURE_LIST))
    if (out / POWER_LIST).is_file():
        drawn[power_page.PICTURE] = lambda: power_page.draw_more_bases(read_once(out, POWER_LIST))
    if (runs := readable(out, PAPER_DOSE_LIST)) is not None:
        drawn[paper_dose_page.PICTURE] = lambda: paper_dose_page.draw_paper_dose(runs.runs)
    if (new := readable(out, QWEN3_5_LIST)) is not None:
        drawn[qwen3_5_page.PICTURE] = lambda: qwen3_5_page.draw_qwen3_5(new.runs)
    return drawn


def _at_the_papers_dose(out: Path) -> PlannedResults | None:
    """The results at gains of the paper's size; None before they may be read."""
    runs = readable(out, PAPER_DOSE_LIST)
    return None if runs is None else runs.runs


def _test_of_precheck(out: Path, earlier: PlannedResults) -> tuple[list[str], list[str]]:
    """The bases that test the pre-check, and the earlier ones of their dose; none before the first may be read."""
    runs = _at_the_papers_dose(out)
    if runs is None:
        return [], []
    return list(runs.listed.bases), list(earlier.doses.get(paper_dose_page.DOSE, ()))


def _with_page(out: Path, results: Results) -> list[Experiment]:
    """The experiments that have bases and a page already: pages of planned ones are not theirs."""
    return [
        experiment
        for experiment in EXPERIMENTS.values()
        if results.groups_of(experiment) and (out / f"{experiment.name}.md").is_file()
    ]


def _picture(out: Path, experiment: Experiment) -> Path | None:
    path = out / f"{experiment.name}.png"
    return path if path.is_file() else None


def write_every_page(out: Path) -> list[Path]:
    """Write pictures, then pages; return the paths of the files. Without matplotlib, pictures stay as they are."""
    written = []
    for name, make in pictures(out).items():
        try:
            figure = make()
        except ImportError:
            sys.stdout.write(f"No pictures: matplotlib is not installed. Install it: {install_command('eval')}.\n")
            break
        if figure is not None:
            figure.savefig(out / name, dpi=130)
            written.append(out / name)
    for name, text in page_texts(out).items():
        (out / name).write_text(text, encoding="utf-8")
        written.append(out / name)
    return written


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vcsd.reproduce.every_page", description=__doc__)
    parser.add_argument("results", type=Path)
    for path in write_every_page(parser.parse_args().results):
        sys.stdout.write(f"Wrote {path}.\n")


if __name__ == "__main__":
    try:
        _main()
    except VcsdError as error:
        sys.exit(str(error))
