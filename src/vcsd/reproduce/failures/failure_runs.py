"""The finished runs of lists that are read once (failures, more bases, the paper's dose, Qwen3.5), and whether they may
be read yet.

Results are read once: when every run of a list is finished, or when `looks.json` in the results folder says why its
time is over: {"failure_runs.json": "The GPU time is spent."}.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.reproduce.judged.judged_claims import QWEN3_5_LIST
from vcsd.reproduce.pages.first_screen import COMMAND
from vcsd.reproduce.planned.paper_dose import PAPER_DOSE_LIST
from vcsd.reproduce.planned.planned_results import in_words, planned_results
from vcsd.reproduce.planned.run_list import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.failures.failure_settings import FailureSetting
    from vcsd.reproduce.paired_runs import Run
    from vcsd.reproduce.planned.planned_results import PlannedResults
    from vcsd.reproduce.planned.run_list import PlannedRun

FAILURE_LIST, POWER_LIST, ENDED_LISTS = "failure_runs.json", "power_runs.json", "looks.json"


@dataclass(frozen=True, eq=False)
class ReadOnce:
    """A list of runs whose results are read once."""

    name: str
    runs: PlannedResults
    shipped: Mapping[PlannedRun, CellResult | None]
    closed_because: str | None = None

    @property
    def num_listed(self) -> int:
        """The number of listed runs."""
        return len(self.runs.listed.runs)

    @property
    def missing(self) -> list[PlannedRun]:
        """The listed runs without a result."""
        on_bases = [run for run in self.runs.runs if self.runs.result(run) is None]
        return [*(run for run, result in self.shipped.items() if result is None), *on_bases]

    @property
    def may_be_read(self) -> bool:
        """Whether every run is finished, or the time is over."""
        return self.closed_because is not None or not self.missing

    def bases(self, setting: FailureSetting) -> list[str]:
        """The bases of a setting."""
        bases = self.runs.listed.bases
        if not setting.suffix:
            return [name for name, base in bases.items() if not base.overrides]
        return [name for name in bases if name.endswith(setting.suffix)]

    def finished(self, setting: FailureSetting) -> tuple[dict[Run, CellResult], dict[Run, CellResult]]:
        """The results before and after."""
        before, after = (self.runs.finished(name, self.bases(setting)) for name in (setting.before, setting.after))
        return before, after

    @property
    def command(self) -> str:
        """The command that makes the runs."""
        return f"python -m vcsd.reproduce.planned.run_planned docs/results/{self.name}"

    def status(self) -> str:
        """How many runs are finished, and why the results are shown or not."""
        done = f"**{self.num_listed - len(self.missing)} of {self.num_listed} runs are finished.**"
        if self.closed_because is not None:
            return f"{done} No more will be made: {self.closed_because}"
        return done if not self.missing else f"{done} Their results are read once, after the last one."

    def commands(self) -> Iterator[str]:
        """What makes the runs, and what writes the page."""
        yield f"- Command: `{self.command}`"
        yield f"- Page: `{COMMAND}` writes it from the files in `cells/`; do not edit it"

    def made(self) -> Iterator[str]:
        """How the results were made, and what is missing."""
        on_bases = [result for run in self.runs.runs if (result := self.runs.result(run)) is not None]
        results = [*on_bases, *(result for result in self.shipped.values() if result is not None)]
        yield from ("## How this was made", "")
        yield from self.commands()
        yield f"- Hardware: {'; '.join(sorted({result['hardware'] for result in results}))}"
        seconds = sum(result["seconds"] for result in results)
        yield f"- Runs: {len(results)}, {seconds:,.0f} s in total, many in parallel"
        readers = Counter(str(result.get("reader", "not recorded")) for result in results)
        yield f"- Versions of the reader: {', '.join(f'{name} ({num} runs)' for name, num in sorted(readers.items()))}"
        yield f"- Missing: {in_words(self.missing) or 'nothing'}"
        yield ""


def read_once(out: Path, name: str) -> ReadOnce:
    """Read a list, its results, and whether its time is over."""
    runs = planned_results(out, name)
    shipped = {run: runs.result(run) for run in runs.listed.runs if run.base.startswith(SHIPPED)}
    return ReadOnce(name, runs, shipped, _reasons(out).get(name))


def readable(out: Path, name: str) -> ReadOnce | None:
    """Read a list like `read_once`; None if the folder has no such list, or before its results may be read."""
    if not (out / name).is_file():
        return None
    runs = read_once(out, name)
    return runs if runs.may_be_read else None


def _reasons(out: Path) -> dict[str, str]:
    path = out / ENDED_LISTS
    if not path.is_file():
        return {}
    reasons = json.loads(path.read_text(encoding="utf-8"))
    known = {FAILURE_LIST, POWER_LIST, PAPER_DOSE_LIST, QWEN3_5_LIST}
    if not isinstance(reasons, dict) or not set(reasons) <= known or not all(map(str, reasons.values())):
        raise ConfigError([f"{path} must map {' or '.join(sorted(known))} to the reason why its time is over."])
    return {name: str(reason) for name, reason in reasons.items()}
