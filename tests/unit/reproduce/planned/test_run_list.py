"""Planned runs: which file says what, in which order, and what waits for its base."""

import json
import shutil
import signal
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from pydantic import PlainSerializer, TypeAdapter

from tiny_bases import make_base, write_planned_card
from vcsd.checkpoint import lock
from vcsd.config.shipped import recipe_path
from vcsd.errors import ConfigError
from vcsd.evaluation.reading.final_answer import READER
from vcsd.reproduce.cell import Sweep
from vcsd.reproduce.experiments import BASE, VCSD
from vcsd.reproduce.planned import run_planned
from vcsd.reproduce.planned.known_runs import KnownRuns, known_runs
from vcsd.reproduce.planned.run_list import read_run_list, together
from vcsd.reproduce.planned.run_planned import BaseMaker, _next_cell, waiting
from vcsd.reproduce.pool import PoolTally

PLANNED = Path(__file__).parents[4] / "docs" / "results" / "planned.json"
BASES = {
    "a": {"family": "qwen3_vl", "size": "tiny", "seed": 1, "set": []},
    "b": {"family": "qwen3_vl", "size": "tiny", "seed": 1, "set": ["ignore_share=0"]},
}


def listed(tmp_path, runs, bases=BASES):
    path = tmp_path / "planned.json"
    path.write_text(json.dumps({"bases": bases, "runs": runs}))
    return read_run_list(path)


def entry(variants, on, experiment="sharpening"):
    return {"experiment": experiment, "variants": variants, "on": on}


def test_what_the_shipped_list_promises():
    planned = read_run_list(PLANNED)
    new = [name for name, base in planned.bases.items() if not base.overrides]
    assert len(new) == 5, "a verdict needs five bases"
    assert len(planned.bases) == 5 + 4 * 3, "four more doses, three bases each"
    compared = ["VCSD", "OPSD", "base", "sharpened 2", "another picture", "majority of 8", "contrast decoding"]
    for name in compared:
        assert {run.base for run in planned.runs if run.variant.name == name} >= set(new)
    seeds = {run.base: run.seed for run in planned.runs if run.base in planned.bases}
    assert all(seed == 200 + planned.bases[base].seed for base, seed in seeds.items())


def test_runs_keep_the_order_of_the_file_and_are_listed_once(tmp_path):
    plan = listed(tmp_path, [entry(["VCSD", "base"], {"a": [1, 2]}), entry(["VCSD"], {"a": [2]})])
    assert [(run.variant, run.seed) for run in plan.runs] == [(VCSD, 1), (VCSD, 2), (BASE, 1), (BASE, 2)]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (entry(["VCSD"], {"c": [1]}), "the base 'c' is not among its bases"),
        (entry(["VCDS"], {"a": [1]}), "'VCDS' is not a variant of sharpening"),
        (entry(["VCSD"], {"a": [1]}, "mian"), "'mian' is not an experiment"),
        ({"experiment": "main"}, "KeyError: 'variants'"),
    ],
)
def test_a_mistake_in_the_list_is_named(run, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        listed(tmp_path, [run])


def test_another_list_has_another_hash(tmp_path):
    assert listed(tmp_path, []).digest != listed(tmp_path, [entry(["VCSD"], {"a": [1]})]).digest


def test_a_run_waits_for_its_base_and_a_known_one_is_passed_over(tmp_path):
    plan = listed(tmp_path, [entry(["VCSD", "base"], {"a": [1]}), entry(["base"], {"b": [1]})])
    sweep = Sweep(recipe_path("world/reproduce"), tmp_path / "out", num_questions=4, num_prompts=16)
    maker = BaseMaker(list(plan.bases.values()), tmp_path / "bases", None, 1)
    todo, tally = list(plan.runs), PoolTally(3, 0)

    known = KnownRuns()

    def take():
        return _next_cell(plan, todo, sweep, maker, known, tally)

    assert take() is None
    write_planned_card(make_base(tmp_path / "bases" / "b"), plan.bases["b"])
    cell = take()
    assert (cell.variant, cell.base.folder.name) == (BASE, "b"), "it does not wait for the runs before it"
    write_planned_card(make_base(tmp_path / "bases" / "a", seed=1), plan.bases["a"])
    known = KnownRuns(frozenset({plan.cell(plan.runs[0], maker.folder, sweep).key}))
    cell = take()
    assert (cell.variant, cell.base.folder.name, tally.num_known, tally.num_todo) == (BASE, "a", 1, 2)
    assert todo == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("_default_interrupt")
def test_a_signal_at_a_bad_time_ends_every_process_and_reports_what_is_done(number, tmp_path, monkeypatch, capsys):
    """While pydantic works, where a KeyboardInterrupt would become an error of another kind."""
    plan = listed(tmp_path, [entry(["VCSD", "base"], {"a": [1]})])
    write_planned_card(make_base(tmp_path / "bases" / "a"), plan.bases["a"])
    maker, ended = BaseMaker(list(plan.bases.values()), tmp_path / "bases", None, 1), []

    def signal_in_pydantic(value):
        signal.raise_signal(number)
        return value

    class StandIn:
        def __init__(self, logs, threads):
            self.process = SimpleNamespace(terminate=lambda: ended.append("terminated"))

        def start(self, cell):
            TypeAdapter(Annotated[int, PlainSerializer(signal_in_pydantic)]).dump_json(1)

        def stop(self):
            ended.append("joined")

    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    monkeypatch.setattr(run_planned, "Worker", StandIn)
    monkeypatch.setattr(run_planned, "_collect", lambda workers, idle, report: None)
    monkeypatch.setattr(maker, "stop", lambda: ended.append("bases"))
    sweep = Sweep(recipe_path("world/reproduce"), tmp_path / "out", num_questions=4, num_prompts=8)
    tally = run_planned.run_list(plan, sweep, maker, KnownRuns(), 1, time.monotonic() + 60)
    assert ended == ["terminated", "bases", "joined"]
    assert (tally.num_todo, tally.keys) == (2, [])
    assert "Interrupted. The same command resumes." in capsys.readouterr().out
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_what_a_killed_command_has_begun_is_waited_for(tmp_path, monkeypatch):
    plan = listed(tmp_path, [entry(["VCSD", "base"], {"a": [1]})])
    sweep = Sweep(recipe_path("world/reproduce"), tmp_path / "out", num_questions=4, num_prompts=16)
    maker = BaseMaker(list(plan.bases.values()), tmp_path / "bases", "cpu", 4)
    started = []
    monkeypatch.setattr(BaseMaker, "_start", lambda maker, name, arguments: started.append(name))
    with lock.only_process(maker.folder / "stems" / "qwen3_vl-tiny-1"):
        maker.advance()
        assert (started, maker.is_done) == ([], False)
    maker.advance()
    assert started == ["stem qwen3_vl-tiny-1"]
    write_planned_card(make_base(maker.folder / "a"), plan.bases["a"])
    todo, tally = list(plan.runs), PoolTally(2, 0)
    with lock.only_process(sweep.out / "work" / plan.cell(plan.runs[0], maker.folder, sweep).key):
        cell = _next_cell(plan, todo, sweep, maker, KnownRuns(), tally)
        assert (cell.variant, todo) == (BASE, [plan.runs[0]])
        assert _next_cell(plan, todo, sweep, maker, KnownRuns(), tally) is None
    assert _next_cell(plan, todo, sweep, maker, KnownRuns(), tally).variant == VCSD


def test_an_archive_that_cannot_be_written_ends_nothing(command, capsys, tmp_path):
    (tmp_path / "full").write_text("a file, where the archive needs a folder")
    code, _ = command("--archive", str(tmp_path / "full" / "runs.tar.gz"), tally=PoolTally(0, 0))
    assert code == 0
    assert "No new archive: " in capsys.readouterr().out


def test_a_stem_is_made_once_and_before_its_branches(tmp_path, monkeypatch):
    plan = listed(tmp_path, [])
    maker = BaseMaker(list(plan.bases.values()), tmp_path, "cpu", 4)
    assert [name for name, _ in maker._todo()] == ["stem qwen3_vl-tiny-1"]
    monkeypatch.setattr(run_planned, "is_stem", lambda folder, plan: True)
    commands = dict(maker._todo())
    assert list(commands) == ["a", "b"]
    assert commands["b"][-4:] == ["--set", "ignore_share=0", "--out", str(tmp_path / "b")]
    maker.failed.update(commands)
    assert maker.is_done
    assert BaseMaker(list(plan.bases.values()), tmp_path, None, 4).is_done, "no bases are made unless asked for"


def test_a_base_with_results_is_not_made_again_and_its_missing_runs_wait(tmp_path):
    plan = listed(tmp_path, [entry(["VCSD", "base"], {"a": [1]}), entry(["base"], {"b": [1]})])
    sweep = Sweep(recipe_path("world/reproduce"), tmp_path / "out", num_questions=4, num_prompts=16)
    maker = BaseMaker(list(plan.bases.values()), tmp_path / "bases", "cpu", 1)
    for name, seed in (("a", 1), ("b", 2)):
        write_planned_card(make_base(maker.folder / name, seed=seed), plan.bases[name])
    cells = [plan.cell(run, maker.folder, sweep) for run in plan.runs]
    folder = tmp_path / "known" / "cells"
    folder.mkdir(parents=True)
    for cell in (cells[0], cells[2]):
        result = {"base": cell.base.folder.name, "group": cell.base.group, "identity": {"base": cell.base.digest}}
        (folder / f"{cell.key}.json").write_text(json.dumps(result))
    known = known_runs(plan, [tmp_path / "missing", tmp_path / "known"])
    known.refuse_other_weights(maker.folder)
    assert waiting(plan, sweep, maker, known) == []
    for name in ("a", "b"):
        (maker.folder / name).rename(tmp_path / f"{name}-elsewhere")
    assert [known.has_result(run, sweep) for run in plan.runs] == [True, False, True], "found without their bases"
    assert waiting(plan, sweep, maker, known) == ["a"]
    assert [name for name, _ in maker._todo()] == ["stem qwen3_vl-tiny-1"]
    maker.used = frozenset(known.bases)
    assert maker.is_done
    make_base(maker.folder / "a", seed=3)
    with pytest.raises(ConfigError, match="a has other weights than the base of the finished runs"):
        known.refuse_other_weights(maker.folder)


def test_a_base_is_finished_with_the_version_of_the_reader_that_began_it(tmp_path):
    plan = listed(tmp_path, [entry(["VCSD", "base"], {"a": [1]}), entry(["base"], {"b": [1]})])
    sweep = Sweep(recipe_path("world/reproduce"), tmp_path / "out", num_questions=4, num_prompts=16)
    for name, seed in (("a", 1), ("b", 2)):
        make_base(tmp_path / "bases" / name, seed=seed)
    cells = [plan.cell(run, tmp_path / "bases", sweep) for run in plan.runs]
    (tmp_path / "out" / "cells").mkdir(parents=True)

    def finished(*cells, reader):
        for cell in cells:
            identity = {"base": cell.base.digest}
            result = {"base": cell.base.folder.name, "group": "g", "identity": identity, "reader": reader}
            cell.path.write_text(json.dumps(result))
        return known_runs(plan, [tmp_path / "out"])

    finished(cells[0], reader=READER).refuse_other_reader(plan, sweep)
    finished(cells[2], reader=READER - 1).refuse_other_reader(plan, sweep)  # its only run is finished
    earlier = finished(cells[0], reader=READER - 1)
    with pytest.raises(ConfigError, match=f"on a were read by version {READER - 1} of the reader, and this is version"):
        earlier.refuse_other_reader(plan, sweep)
    finished(cells[1], reader=READER - 1).refuse_other_reader(plan, sweep)


def test_a_lost_base_is_made_again_and_all_its_runs_are_repeated(tmp_path):
    plan = listed(tmp_path, [entry(["VCSD", "base"], {"a": [1]}), entry(["base"], {"b": [1]})])
    sweep = Sweep(recipe_path("world/reproduce"), tmp_path / "out", num_questions=4, num_prompts=16)
    maker = BaseMaker(list(plan.bases.values()), tmp_path / "bases", "cpu", 1)
    old, new = ({"base": "a", "group": "g", "identity": {"base": name}} for name in ("old", "new"))
    for folder, result in (("known", old), ("out", new)):
        (tmp_path / folder / "cells").mkdir(parents=True)
        (tmp_path / folder / "cells" / f"{folder}.json").write_text(json.dumps(result))
    folders = [tmp_path / "nothing yet", tmp_path / "known"]
    known = known_runs(plan, folders, lost=["a"])
    assert (known.keys, known.bases) == (frozenset(), {}), "nothing of the first base counts"
    maker.used = frozenset(known.bases)
    assert [name for name, _ in maker._todo()] == ["stem qwen3_vl-tiny-1"]
    assert known_runs(plan, folders).bases["a"].digest == "old"
    resumed = known_runs(plan, [tmp_path / "out", tmp_path / "known"], lost=["a"])
    assert resumed.bases["a"].digest == "new", "its new results count when the command resumes"
    assert resumed.keys == {"out"}
    assert waiting(plan, sweep, maker, resumed) == ["a"]


def test_lists_run_together_and_every_result_names_its_own(tmp_path):
    first = listed(tmp_path, [entry(["base"], {"a": [1]})])
    second = listed(tmp_path, [entry(["base", "VCSD"], {"a": [1], "b": [2]})])
    both = together({"run first": first, "run second": second})
    assert [(run.variant, run.base) for run in both.runs] == [(BASE, "a"), (BASE, "b"), (VCSD, "a"), (VCSD, "b")]
    assert [both.commands[run] for run in both.runs] == ["run first", *["run second"] * 3]
    assert list(dict.fromkeys(both.commands.values())) == ["run first", "run second"]
    sweep = Sweep(recipe_path("world/reproduce"), tmp_path / "out", num_questions=4, num_prompts=16)
    make_base(tmp_path / "bases" / "b")
    cell, plain = (plan.cell(second.runs[1], tmp_path / "bases", sweep) for plan in (both, second))
    assert (cell.sweep.command, cell.key) == ("run second", plain.key)
    other = listed(tmp_path, [], {"a": {**BASES["a"], "seed": 2}})
    with pytest.raises(ConfigError, match="a: the lists mean different bases"):
        together({"run first": first, "run other": other})


def test_an_archive_has_results_and_the_bases_with_missing_runs(command, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "out" / "bases" / name).mkdir(parents=True)
    base = make_base(tmp_path / "out" / "bases" / "a")
    write_planned_card(base, listed(tmp_path, [entry(["base"], {"a": [1]})]).bases["a"])
    archive = tmp_path / "kept" / "runs.tar.gz"
    code, _ = command("--archive", str(archive), tally=PoolTally(1, 0))
    assert code == 0
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        tar.extractall(tmp_path / "elsewhere", filter="data")
    assert {"cards/a.json", "runs.jsonl", "bases/a/card.json"} <= set(names)
    assert not [name for name in names if name.startswith("bases/b")]
    weights = [
        (folder / "bases" / "a" / "model.safetensors").read_bytes()
        for folder in (tmp_path / "out", tmp_path / "elsewhere")
    ]
    assert weights[0] == weights[1], "it resumes elsewhere from the same weights"
    assert command("--again", "c", tally=PoolTally(0, 0))[0] == 2


def test_a_base_that_was_made_otherwise_is_refused(tmp_path):
    plan = listed(tmp_path, [])
    maker = BaseMaker(list(plan.bases.values()), tmp_path / "bases", None, 1)
    (maker.folder / "a").mkdir(parents=True)
    assert not maker.has("a")
    write_planned_card(maker.folder / "a", replace(plan.bases["a"], seed=2, overrides=("batch=8",)))
    with pytest.raises(
        ConfigError, match=r"a is not the planned base a: seed 2, planned 1; parameters \w+, planned \w+\."
    ):
        maker.has("a")
    write_planned_card(maker.folder / "a", plan.bases["a"])
    assert maker.has("a")


def test_the_recorded_cards_are_those_of_planned_bases(tmp_path):
    planned, cards = read_run_list(PLANNED), PLANNED.parent / "cards"
    names = [name for name in planned.bases if (cards / f"{name}.json").is_file()]
    assert len(names) >= 5
    for name in names:
        (tmp_path / name).mkdir()
        shutil.copy(cards / f"{name}.json", tmp_path / name / "card.json")
    maker = BaseMaker(list(planned.bases.values()), tmp_path, None, 1)
    assert all(maker.has(name) for name in names)


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Run the command on a list of one run, without processes: `tally` is what its runs came to."""
    listed(tmp_path, [entry(["base"], {"a": [1]})])
    made = {}

    def runs_nothing(plan, sweep, maker, known, jobs, deadline, save):
        made["maker"] = maker
        return made["tally"]

    def start(*more, tally):
        made["tally"] = tally
        monkeypatch.setattr(run_planned, "run_list", runs_nothing)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        words = ["run_planned", str(tmp_path / "planned.json"), "--out", str(tmp_path / "out"), *more]
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as ended:
            run_planned.main()
        return ended.value.code, made["maker"]

    return start


def test_a_smoke_test_leaves_the_folders_of_real_runs_alone(command, tmp_path):
    bases, known = tmp_path / "my bases", tmp_path / "known"
    code, maker = command("--quick", "--bases", str(bases), "--known", str(known), tally=PoolTally(0, 0))
    assert code == 0
    assert maker.folder == tmp_path / "out" / "quick" / "bases"
    assert [base.size for base in maker.bases] == ["tiny"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["quick"]
    assert not bases.exists()
    code, maker = command("--bases", str(bases), tally=PoolTally(0, 0))
    assert (code, maker.folder, maker.used) == (0, bases, frozenset())


def test_a_failed_run_is_the_exit_code(command, capsys):
    code, _ = command(tally=PoolTally(1, 0, failed=["base on a, seed 1: RunError"]))
    assert code == 1
    assert capsys.readouterr().out.endswith("s.\nFAILED: base on a, seed 1: RunError\n")
