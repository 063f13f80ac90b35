"""The judge of the commands: it lists the answers on which it failed, and its stored replies name their server.

A reply is found again by its request alone, whatever the server's address: a local server often comes back on another
port, and asking everything again would cost hours. Scorecards name the servers if there are several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.evaluation.reading.judging.judge import Judge
from vcsd.evaluation.reading.judging.judge_presets import PRESETS
from vcsd.monitor.lines import read_lines

if TYPE_CHECKING:
    from pathlib import Path

    from vcsd.evaluation.asking.judge_client import JudgeClient
    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.reading.judging.judge import Judgement
    from vcsd.evaluation.reading.judging.judge_presets import JudgePreset
    from vcsd.types import JsonObject, Question

_FEW = 3
"""Reasons of failures that are printed, and answers of each; the file of replies has all."""


class ServedJudge(Judge):
    """A judge behind a JudgeClient, with a file of replies."""

    def __init__(
        self, client: JudgeClient, model: str, *, cache: Path, preset: JudgePreset = PRESETS["strict"]
    ) -> None:
        super().__init__(client, model, preset=preset, cache=cache)
        self._server, self._cache = client.url, cache
        self.failures: dict[tuple[str, str], Judgement] = {}
        """The failed judgements, by benchmark and question."""

    def about(self) -> JsonObject:
        """Return what a scorecard records about the judge: also the servers of its stored replies, if several."""
        servers = servers_in(self._cache, self.model)
        return {**super().about(), **({"servers": servers} if len(servers) > 1 else {})}

    def read(self, question: Question, answer: str, benchmark: Benchmark, rules: str) -> Judgement:
        """Read one answer."""
        judgement = super().read(question, answer, benchmark, rules)
        if judgement.failure is not None:
            self.failures[question.benchmark, question.id] = judgement
        return judgement

    def failure_lines(self) -> list[str]:
        """Name a few of the answers on which it failed, by reason."""
        names: dict[str, list[str]] = {}
        for (benchmark, question), judgement in sorted(self.failures.items()):
            names.setdefault(judgement.said or str(judgement.failure), []).append(f"{benchmark} {question!r}")
        lines = [f"The judge failed on {_first(several)}: {reason}" for reason, several in names.items()]
        return lines[:_FEW] + ([f"There are {len(lines) - _FEW} more reasons."] if len(lines) > _FEW else [])

    def _write(self, record: JsonObject) -> None:
        super()._write({**record, "server": self._server})


def _first(names: list[str]) -> str:
    """List the first few names.

    >>> _first(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


def servers_in(cache: Path, model: str) -> list[str]:
    """Return the addresses that gave the stored replies of a model. Records of older releases have none."""
    records = (record for record in read_lines(cache) if "reply" in record and record.get("model") == model)
    return sorted({str(record["server"]) for record in records if "server" in record})
