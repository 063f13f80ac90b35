"""One command for the whole study: processes are started in order, started again, and ended with it.

The processes are small scripts here: they write cards and cells as the real ones would, or fail.
"""

import json
import signal
import sys
from pathlib import Path

import pytest

from tiny_language import write_language, write_sprites
from vcsd.emoji.study import emoji_bases, whole_study
from vcsd.emoji.study.language_page import page
from vcsd.emoji.study.set_aside import lost_bases, set_aside
from vcsd.emoji.study.study_list import read_study
from vcsd.emoji.study.whole_study import StudyPaths, WholeStudy
from vcsd.emoji.teach import CARD

LIST = Path(__file__).parents[3] / "docs" / "results" / "language_runs.json"
NAMES = [f"emoji-{number}" for number in range(1, 6)]
TEACH = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1]); folder.mkdir(parents=True)
(folder / "emoji_base.json").write_text('{"seconds": 100.0}')
"""
WORK = """
import json, pathlib, sys, time
bases, cells = map(pathlib.Path, sys.argv[1:3])
cells.mkdir(parents=True, exist_ok=True)
names = json.loads(sys.argv[3])
while left := [name for name in names if not (cells / f"{name}.json").exists()]:
    for name in left:
        if not (bases / "-".join(name.split("-")[1:3]) / "emoji_base.json").exists():
            continue
        (cells / f"{name}.json").write_text(json.dumps({"list": sys.argv[4], "seconds": 10.0}))
    time.sleep(0.001)
"""


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(whole_study, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(whole_study, "_PAUSE_SECONDS", 0.0)


def study_in(folder, teach=TEACH, work=WORK):
    listed, said = read_study(LIST), []
    paths = StudyPaths(LIST, folder / "language", folder / "sprites", folder / "bases", folder / "out")
    study = WholeStudy(listed, paths, workers=2, teachers=1, overrides=[], say=said.append)
    for name, process in study.bases.items():
        process.command = [sys.executable, "-c", teach, str(paths.bases / name)]
    names = json.dumps([run.name for run in listed.runs])
    for worker in study.workers:
        worker.command = [sys.executable, "-c", work, str(paths.bases), str(paths.out / "cells"), names, listed.digest]
    return study, said


def test_everything_is_made_and_cards_are_kept(tmp_path):
    study, said = study_in(tmp_path)
    assert study.run(60) == 0
    assert [line for line in said if "being taught" in line] == [f"{name} is being taught" for name in NAMES]
    assert said[-1].endswith("43 of 43 runs")
    assert sorted(path.stem for path in (tmp_path / "out" / "cards").iterdir()) == NAMES
    assert not any(each.is_running for each in [*study.workers, *study.bases.values()])
    again, said = study_in(tmp_path, teach="1/0", work="1/0")
    assert again.run(60) == 0
    assert said == ["43 of 43 runs are made already"], "what is finished is not begun again"
    for name in study.listed.bases:  # as on another machine: results without their base
        (tmp_path / "bases" / name / CARD).unlink()
    done = ", ".join(f"{name} done" for name in NAMES)
    assert again.progress([]) == f"{done}; 43 of 43 runs; about 0:00:00 left"


def test_processes_that_die_are_started_again(tmp_path):
    once = "import pathlib, os, sys\nmark = pathlib.Path(sys.argv[1] + '.tried')\n"
    once += "if not mark.exists():\n mark.parent.mkdir(exist_ok=True); mark.touch(); os.kill(os.getpid(), 9)\n"
    study, said = study_in(tmp_path, teach=once + TEACH, work=once + WORK)
    assert study.run(60) == 0
    assert sum("ended with status -9 and starts again" in line for line in said) >= 4
    assert {process.num_starts for process in study.bases.values()} == {2}


def test_a_base_that_a_killed_study_still_holds_is_waited_for(tmp_path):
    busy = "import pathlib, sys\nmarks = pathlib.Path(sys.argv[1] + '.marks')\nmarks.parent.mkdir(exist_ok=True)\n"
    busy += "with marks.open('a') as file: file.write('x')\nif len(marks.read_text()) < 7: sys.exit(4)\n"
    study, _ = study_in(tmp_path, teach=busy + TEACH)
    assert study.run(60) == 0
    assert (tmp_path / "bases" / "emoji-1.marks").read_text() == 7 * "x"


def test_a_signal_ends_teaching_at_once_or_after_the_step(monkeypatch):
    ended, alarms = [], []
    monkeypatch.setattr(emoji_bases.os, "_exit", ended.append)
    monkeypatch.setattr(emoji_bases.signal, "alarm", alarms.append)
    before = signal.getsignal(signal.SIGTERM)
    try:
        emoji_bases.StopSignal()
        signal.raise_signal(signal.SIGTERM)
        assert ended == [143], "before the first step there is nothing to save"
        ended.clear()
        alarms.clear()
        stop = emoji_bases.StopSignal()
        assert not stop.has_come()
        signal.raise_signal(signal.SIGTERM)
        assert stop.has_come()
        assert (ended, alarms) == ([], [30])
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_base_that_cannot_be_taught_costs_only_its_own_runs(tmp_path):
    teach = "import sys\nif sys.argv[1].endswith('emoji-2'): sys.exit('error: no')\n" + TEACH
    study, said = study_in(tmp_path, teach=teach)
    assert study.run(60) == 1
    assert {run.base for run in study.left()} == {"emoji-2"}
    assert study.bases["emoji-2"].num_starts == 4
    assert said[-1].startswith("6 runs cannot be made: emoji-2: error: no")


def test_without_the_base_that_settles_nothing_final_is_trained(tmp_path):
    study, _ = study_in(tmp_path, teach="import sys; sys.exit(2)")
    study.bases["emoji-1"].start()
    study.bases["emoji-1"].process.wait()
    assert {run.name for run in study._possible(study.left())} == {
        f"test-emoji-{n}-{variant}" for n in (2, 3, 4, 5) for variant in ("base", "contrast_decoding")
    }


def test_a_refusal_ends_all_with_its_sentence(tmp_path):
    refuse = "import sys; sys.stderr.write('error: ConfigError: other weights\\n'); sys.exit(2)"
    study, said = study_in(tmp_path, teach="import time; time.sleep(60)", work=refuse)
    assert study.run(60) == 2
    assert said[-1] == "error: ConfigError: other weights"
    assert not study.bases["emoji-1"].is_running


def test_the_end_of_the_time_ends_all_processes(tmp_path):
    study, _ = study_in(tmp_path, teach="import time; time.sleep(60)")
    assert study.run(0.5) == 3
    assert [each.status for each in [study.bases["emoji-1"], *study.workers]] == [-15, -15, -15]
    assert study.bases["emoji-2"].num_starts == 0


def test_progress_tells_steps_and_time_left(tmp_path):
    study, _ = study_in(tmp_path)
    waiting = [f"{name} waits" for name in NAMES]
    assert study.progress(study.left()) == f"{', '.join(waiting)}; 0 of 43 runs; time left not known yet"
    (tmp_path / "bases" / "emoji-1").mkdir(parents=True)
    (tmp_path / "bases" / "emoji-1" / CARD).write_text('{"seconds": 100.0}')
    log = study.bases["emoji-2"].log
    log.parent.mkdir(parents=True)
    log.write_text("  3.0 s  captions 300/800 loss 0.2, about 0:01:10 left\nsomething else\n")
    study.workers[0].log.write_text("FAILED dev-emoji-1-base: OutOfMemoryError: no\n")
    first, second, *_ = study.listed.runs
    for run, seconds in ((first, 5.0), (second, 50.0)):
        cell = tmp_path / "out" / "cells" / f"{run.name}.json"
        cell.parent.mkdir(exist_ok=True)
        cell.write_text(json.dumps({"list": study.listed.digest, "seconds": seconds}))
    third = study.listed.runs[2].name
    metrics = tmp_path / "out" / "work" / third / "metrics.jsonl"
    metrics.parent.mkdir(parents=True)
    metrics.write_text("{}\n{}\n")
    left = study.left()
    trained = sum(run.trains for run in left)
    assert trained == 31
    # two workers for 41 runs of 50 s each, or what is left of emoji-2, three more bases, and two runs after each other
    assert study.seconds_left(left) == max(41 * 50 / 2, 70 + 3 * 100 + 2 * 50)
    assert study.progress(left) == (
        f"emoji-1 taught, emoji-2 captions 300/800, {', '.join(waiting[2:])}; 2 of 43 runs, 1 FAILED attempts "
        f"(see {tmp_path / 'out' / 'log'}); at work: {third} step 2; about 0:17:05 left"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--workers", "0"], "--workers = 0 must be at least 1"), ([], "the list plans other things")],
)
def test_refusals_come_before_anything_starts(tmp_path, monkeypatch, capsys, options, said):
    write_language(tmp_path / "language")
    write_sprites(tmp_path / "sprites")
    paths = [f"--{name}={tmp_path / name}" for name in ("language", "sprites", "bases", "out")]
    monkeypatch.setattr(sys, "argv", ["whole_study", str(LIST), *paths, *options])
    monkeypatch.setattr(whole_study.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as left:
        whole_study.main()
    assert left.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def made(folder, names):
    listed = read_study(LIST)
    for name in names:
        for path in (folder / "cells" / f"{name}.json", folder / "runs" / name / "keys.jsonl"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"list": listed.digest, "seconds": 1.0, "base_weights": "same"}))
    return listed


def names_of(base):
    return [run.name for run in read_study(LIST).runs if run.base == base]


def test_a_base_whose_runs_are_all_made_is_not_lost_and_one_that_is_here_neither(tmp_path):
    listed = made(tmp_path, [*names_of("emoji-1"), *names_of("emoji-2")[:2]])
    assert lost_bases(listed, tmp_path / "bases", tmp_path) == ["emoji-2"]
    (tmp_path / "bases" / "emoji-2").mkdir(parents=True)
    (tmp_path / "bases" / "emoji-2" / CARD).write_text("{}")
    assert lost_bases(listed, tmp_path / "bases", tmp_path) == []
    assert lost_bases(listed, tmp_path / "bases", tmp_path / "other") == [], "nothing is made: nothing is lost"


def test_if_the_base_that_settles_is_lost_all_bases_start_over(tmp_path):
    listed = made(tmp_path, [*names_of("emoji-1")[:-1], *names_of("emoji-2")])
    assert lost_bases(listed, tmp_path / "bases", tmp_path) == ["emoji-1", "emoji-2"]


def test_results_of_lost_bases_are_moved_and_counted_on_the_page(tmp_path):
    kept, lost = names_of("emoji-1"), names_of("emoji-2")[:3]
    for number in ("1", "2"):
        listed = made(tmp_path, [*kept, *lost])
        (tmp_path / "cards").mkdir(exist_ok=True)
        (tmp_path / "cards" / "emoji-2.json").write_text("{}")
        folder = set_aside(listed, ["emoji-2"], tmp_path)
        assert folder == tmp_path / "lost" / number
        assert sorted(path.stem for path in (folder / "cells").iterdir()) == sorted(lost)
        assert sorted(path.name for path in (folder / "runs").iterdir()) == sorted(lost)
        assert (folder / "cards" / "emoji-2.json").is_file()
    assert sorted(path.stem for path in (tmp_path / "cells").iterdir()) == sorted(kept)
    assert not list((tmp_path / "cards").iterdir())
    assert "6 results in `lost` are of bases whose weights were lost" in page(listed, tmp_path)


def test_a_study_without_the_weights_of_its_results_is_refused_before_it_teaches(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(whole_study, "check_planned", lambda *_: None)
    monkeypatch.setattr(whole_study.WholeStudy, "run", lambda self, seconds: len(self.left()) - 6)
    complete = [name for base in NAMES if base != "emoji-2" for name in names_of(base)]
    made(tmp_path / "out", [*complete, *names_of("emoji-2")[:2]])
    paths = [part for name in ("language", "sprites", "bases", "out") for part in (f"--{name}", str(tmp_path / name))]
    before = signal.getsignal(signal.SIGTERM)
    try:
        for more, status in (([], 2), (["--set-aside-lost"], 0)):
            monkeypatch.setattr(sys, "argv", ["whole_study", str(LIST), *paths, *more])
            with pytest.raises(SystemExit) as ended:
                whole_study.main()
            assert ended.value.code == status
    finally:
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr()
    assert "results of emoji-2, but not all" in said.err
    assert "the results of emoji-2 are set aside in" in said.out


def test_the_card_of_a_base_is_kept_as_soon_as_it_is_taught_and_follows_it(tmp_path):
    study, _ = study_in(tmp_path)
    card, kept = tmp_path / "bases" / "emoji-1" / CARD, tmp_path / "out" / "cards" / "emoji-1.json"
    card.parent.mkdir(parents=True)
    for text in ('{"seconds": 1.0}', '{"seconds": 2.0}'):
        card.write_text(text)
        study.keep_cards()
        assert kept.read_text() == text
