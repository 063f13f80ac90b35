"""Finished predictions are scored again without a model, the data, or a change to what was there."""

import fcntl
import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from faulty_disk import half_written_files
from tiny_answers import COLOURS
from toy_questions import Parrot, question
from toy_server import completion, toy_server
from vcsd.cli.app import app
from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.asked_questions import ASKED
from vcsd.evaluation.asking import chat
from vcsd.evaluation.asking.chat import ChatClient
from vcsd.evaluation.benchmarks.loading import DataReport, LoadedBenchmark
from vcsd.evaluation.benchmarks.own_tsv import own_benchmark
from vcsd.evaluation.benchmarks.world_suites import ALL_BENCHMARKS
from vcsd.evaluation.evaluate import Asking, Scoring, evaluate
from vcsd.evaluation.reading.judging.judge import Judge
from vcsd.evaluation.reading.marking import Marking
from vcsd.evaluation.rescore import read_asked, rescore
from vcsd.evaluation.scoring.compare import compare, load_results, over_seeds
from vcsd.evaluation.scoring.scorecard import load_scorecard
from vcsd.rollout.sampling import Sampling

SAID = ("B", "The answer is (B).", "**B**", "$B$")


def renamed(head, rows, name):
    """What a stranger may write: a benchmark of another name, after which a file is named."""
    report = {**head["made_with"]["data"]["mine"], "benchmark": name}
    made_with = {**head["made_with"], "data": {name: report}}
    return [{**head, "made_with": made_with, "own": {name: []}}, *({**row, "benchmark": name} for row in rows)]


def seeded(head, rows, name):
    """The same with two seeds, after which folders are named."""
    return [{**head, "seeds": [name, 1]}, *({**row, "keys": [*row["keys"], "k"]} for row in rows)]


def asked(name="mine", options=COLOURS):
    return [
        question(str(n), text=text, benchmark=name, kind="option", gold="B", options=options, groups={"category": "c"})
        for n, text in enumerate(SAID)
    ]


def finished(out, seeds=(0,), fails=(), temperature=0.5):
    """An evaluation of four questions, which a parrot answers with their own words."""
    report = DataReport("mine", "mine.tsv", "TSV", "0", False, 4, 4, 0)
    suites = {**ALL_BENCHMARKS, "mine": own_benchmark("mine", ("category",))}
    asking = Asking(sampling=Sampling(max_new_tokens=9, temperature=temperature), seeds=seeds)
    loaded = [LoadedBenchmark(tuple(asked()), report)]
    scoring = Scoring(Marking("final"), allow_failed=bool(fails), suites=suites)
    return evaluate(loaded, Parrot(fails=fails), out, asking, scoring, title="parrot")


def test_the_same_mode_gives_the_same_scorecard_and_another_mode_another(tmp_path):
    (card,) = finished(tmp_path)
    (again,) = rescore(tmp_path, Marking("final"), tmp_path / "again")
    assert again.to_json() == card.to_json()
    assert load_scorecard(tmp_path / "again" / "scorecard.json") == again
    (exact,) = rescore(tmp_path, Marking("exact"), tmp_path / "exact")
    assert (exact.mode, exact.made_with["model"]) == ("exact", "parrot")
    assert exact.acc < card.acc  # which cannot read $B$
    assert load_scorecard(tmp_path / "scorecard.json") == again
    assert exact.benchmarks["mine"].groups["category"]["c"].num_questions == 4
    assert (tmp_path / "exact" / "report.html").exists()


def test_every_seed_is_scored_again(tmp_path):
    cards = finished(tmp_path, seeds=(3, 5))
    again = rescore(tmp_path, Marking("final"), tmp_path / "again")
    assert [card.made_with["seed"] for card in again] == [3, 5]
    assert again == load_results(tmp_path / "again") == load_results(tmp_path)
    seeds = json.loads((tmp_path / "again" / "seeds.json").read_text())
    assert seeds["acc"]["mean"] == cards[0].acc
    assert seeds == json.loads((tmp_path / "seeds.json").read_text())
    # Both seeds of the parrot say the same: the second answer adds nothing.
    measured = seeds["several_answers"]["mine"]
    assert measured["pass_at"] == {"1": cards[0].acc, "2": cards[0].acc}
    assert (measured["distinct"], measured["entropy"], measured["mean_tokens"]) == (1.0, 0.0, 3.0)
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["score", str(tmp_path)])
    assert "pass@2" in shown.output


def test_the_questions_are_those_that_were_asked_but_for_their_images(tmp_path):
    finished(tmp_path)
    for before, after in zip(asked(), read_asked(tmp_path).questions, strict=True):
        for name in ("id", "kind", "gold", "options", "groups"):
            assert getattr(after, name) == getattr(before, name)
        assert after.example.images == ()


def test_questions_about_one_picture_stay_one_cluster(tmp_path):
    finished(tmp_path)
    rows = (tmp_path / ASKED).read_text().splitlines()
    (tmp_path / ASKED).write_text(
        "\n".join([rows[0], *(row.replace('"category"', '"image": "x", "category"') for row in rows[1:])])
    )
    (card,) = rescore(tmp_path, Marking("final"), tmp_path / "again")
    assert set(card.benchmarks["mine"].tally.clusters) == {0}


def test_failed_questions_stay_failed(tmp_path):
    finished(tmp_path, fails=("2",))
    with pytest.raises(RunError, match=r"1 failed, the first is '2'"):
        rescore(tmp_path, Marking("final"), tmp_path / "again")
    (card,) = rescore(tmp_path, Marking("final"), tmp_path / "again", allow_failed=True)
    assert card.benchmarks["mine"].counts.failed == 1


def test_a_folder_without_questions_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"has no asked.jsonl.*vcsd eval once more"):
        rescore(tmp_path, Marking("final"), tmp_path / "again")
    (tmp_path / ASKED).write_text('{"made_with": {}}\n')
    with pytest.raises(ConfigError, match=r"asked.jsonl is damaged"):
        read_asked(tmp_path)
    (tmp_path / ASKED).write_text("")
    with pytest.raises(ConfigError, match=r"asked.jsonl is damaged"):
        read_asked(tmp_path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda head, rows: [head, *rows[:3]], "it has 3 questions of mine, 4 were asked"),
        (lambda head, rows: [head, *rows, rows[0]], "a question occurs twice"),
        (lambda head, rows: [{**head, "seeds": [0, 1]}, *rows], "does not have one key for each seed"),
        (lambda head, rows: [head, {**rows[0], "keys": []}, *rows[1:]], "does not have one key for each seed"),
        (lambda head, rows: [{**head, "own": {}}, *rows], "does not say what mine is"),
        (lambda head, rows: [head, {**rows[0], "options": ["A"]}, *rows[1:]], "AttributeError"),
        (lambda head, rows: renamed(head, rows, "../../outside"), "'../../outside' is not the name of an own file"),
        (lambda head, rows: renamed(head, rows, "/tmp/outside"), "'/tmp/outside' is not the name of an own file"),
        (lambda head, rows: renamed(head, rows, "BLINK"), "'BLINK' is not the name of an own file"),
        (lambda head, rows: seeded(head, rows, "../../outside"), "a seed is not a number"),
        (lambda head, rows: [head, {**rows[0], "kind": "riddle"}, *rows[1:]], "'riddle' is not a kind of question"),
    ],
)
def test_questions_that_are_not_whole_are_never_scored(tmp_path, damage, said):
    finished(tmp_path)
    head, *rows = (json.loads(line) for line in (tmp_path / ASKED).read_text().splitlines())
    (tmp_path / ASKED).write_text("".join(f"{json.dumps(line)}\n" for line in damage(head, rows)))
    with pytest.raises(ConfigError, match=rf"asked.jsonl is damaged.*{said}"):
        rescore(tmp_path, Marking("final"), tmp_path / "again")


def test_the_command_writes_beside_the_run_and_prints_the_scores(tmp_path):
    finished(tmp_path)
    shown = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["score", str(tmp_path), "--mode", "exact"])
    assert shown.exit_code == 0, shown.output
    assert "mine" in shown.output
    assert load_scorecard(tmp_path / "scored-exact" / "scorecard.json").mode == "exact"


def test_the_command_takes_mathvistas_comparison_and_names_the_folder_after_it(tmp_path):
    finished(tmp_path)
    shown = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["score", str(tmp_path), "--mathvista", "nearest"])
    assert shown.exit_code == 0, shown.output
    assert load_scorecard(tmp_path / "scored-final-nearest" / "scorecard.json").mode == "final"
    assert "--mathvista nearest changed nothing" in shown.output  # nobody asked MathVista


def test_a_judge_scores_finished_answers_and_its_replies_are_kept_with_the_run(tmp_path):
    finished(tmp_path)
    with toy_server(lambda request: (200, completion('"B"'))) as server:
        judged = ["--mode", "judge", "--judge", "wise", "--judge-server", server.url, "--judge-preset", "vlmevalkit"]
        for _ in range(2):
            shown = CliRunner().invoke(app, ["score", str(tmp_path), *judged])
            assert shown.exit_code == 0, shown.output
        assert len(server.requests) == 1  # $B$, once
    card = load_scorecard(tmp_path / "scored-judge-vlmevalkit" / "scorecard.json")
    assert (card.acc, card.made_with["judge"]["preset"]) == (100.0, "vlmevalkit")
    assert (tmp_path / "judge.jsonl").exists()


def test_a_judge_that_is_interrupted_says_that_its_replies_are_kept(tmp_path, monkeypatch):
    finished(tmp_path)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Judge, "read_all", interrupted)
    judged = ["--mode", "judge", "--judge", "wise", "--judge-server", "http://127.0.0.1:1/v1"]
    shown = CliRunner().invoke(app, ["score", str(tmp_path), *judged])
    assert shown.exit_code == 130
    assert "Stopped. Replies of the judge so far are kept; the same command resumes." in shown.stderr


def test_a_judges_preset_without_a_judge_is_refused(tmp_path):
    finished(tmp_path)
    shown = CliRunner().invoke(app, ["score", str(tmp_path), "--judge-preset", "vlmevalkit"])
    assert isinstance(shown.exception, ConfigError)
    assert "--judge-preset are for --mode judge, but the mode is 'final'" in str(shown.exception)


def test_more_seeds_of_one_result_are_named_as_a_difference(tmp_path):
    finished(tmp_path / "a", seeds=(0,))
    finished(tmp_path / "b", seeds=(0, 1))
    one, two = (load_results(tmp_path / name) for name in ("a", "b"))
    assert compare(two, two).made_differently == {}
    assert compare(one, two).made_differently == {"seed": (0, "0, 1")}


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    finished(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"the scores cannot be written: .*file.* choose another \(--out\)"):
        rescore(tmp_path / "run", Marking("exact"), tmp_path / "file")
    assert (tmp_path / "file").read_text() == ""


def test_two_folders_of_seeds_are_compared(tmp_path):
    finished(tmp_path / "a", seeds=(0, 1))
    finished(tmp_path / "b", seeds=(5, 6, 7))
    command = ["eval", "--compare", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "c")]
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert json.loads((tmp_path / "c" / "comparison.json").read_text())["acc"]["difference"] == 0.0
    assert "Their settings differ too: seed 0, 1 and 5, 6, 7." in " ".join(shown.output.split())
    assert "mine" in (tmp_path / "c" / "report.html").read_text()
    with half_written_files():
        assert "No space left" in str(CliRunner().invoke(app, command).exception)
    assert json.loads((tmp_path / "c" / "comparison.json").read_text())["acc"]["difference"] == 0.0


def test_seeds_that_were_asked_differently_are_not_averaged(tmp_path):
    finished(tmp_path, seeds=(0, 1, 2))
    finished(tmp_path, seeds=(0, 1), temperature=0.7)
    cards = load_results(tmp_path)
    with pytest.raises(ConfigError, match=r"seeds 0 and 2 were asked differently: temperature 0.7 and 0.5"):
        compare(cards, cards)
    with pytest.raises(ConfigError, match="asked differently"):
        over_seeds(cards)
    assert over_seeds(cards[:2]).acc.sd == 0.0
    made = {**cards[0].made_with, "asker": {"model": "m", "chat_template_kwargs": {"enable_thinking": False}}}
    thinking = {**made, "asker": {"model": "n", "chat_template_kwargs": {"enable_thinking": True}}}
    with pytest.raises(ConfigError, match="chat_template_kwargs enable_thinking False and True"):
        over_seeds([replace(cards[0], made_with=made), replace(cards[1], made_with=thinking)])
    corrected = {**made, "data": {"mine": {"md5": "1"}}}
    with pytest.raises(ConfigError, match="data mine"):
        over_seeds([replace(cards[0], made_with=made), replace(cards[1], made_with=corrected)])


def test_a_folder_with_one_seed_and_with_several_does_not_say_which_to_compare(tmp_path):
    finished(tmp_path)
    finished(tmp_path, seeds=(0, 1))
    with pytest.raises(ConfigError, match=r"one seed and scorecards of several.*Pass .*scorecard.json"):
        load_results(tmp_path)
    assert len(load_results(tmp_path / "scorecard.json")) == 1
    (tmp_path / "scorecard.json").rename(tmp_path / "one.json")
    assert len(load_results(tmp_path)) == 2


def test_scores_of_other_rules_or_another_judge_are_not_overwritten(tmp_path):
    finished(tmp_path)
    command = ["score", str(tmp_path), "--mode", "exact", "--rules"]
    for _ in range(2):
        assert CliRunner().invoke(app, [*command, "2025-08"]).exit_code == 0
    with pytest.raises(ConfigError, match=r"made differently \(mode exact, rules 2025-08\).*--out"):
        rescore(tmp_path, Marking("exact"), tmp_path / "scored-exact")
    with toy_server(lambda request: (200, completion("B"))) as server:
        wise, other = (Marking("judge", judge=Judge(ChatClient(server.url), name)) for name in ("wise", "other"))
        rescore(tmp_path, wise, tmp_path / "judged")
        with pytest.raises(ConfigError, match=r"mode judge.*judge wise"):
            rescore(tmp_path, other, tmp_path / "judged")


def test_scores_of_another_mode_are_not_overwritten(tmp_path):
    finished(tmp_path)
    rescore(tmp_path, Marking("final"), tmp_path / "again")
    with pytest.raises(ConfigError, match=r"made differently \(mode final"):
        rescore(tmp_path, Marking("exact"), tmp_path / "again")
    assert load_scorecard(tmp_path / "again" / "scorecard.json").mode == "final"


def test_scores_of_another_comparison_are_not_overwritten(tmp_path):
    finished(tmp_path)
    rescore(tmp_path, Marking("final"), tmp_path / "again")
    path = tmp_path / "again" / "scorecard.json"
    path.write_text(path.read_text().replace('"numbers": "official"', '"numbers": "nearest"'))
    with pytest.raises(ConfigError, match=r"made differently \(mine compared by nearest\).*--out"):
        rescore(tmp_path, Marking("final"), tmp_path / "again")


def test_failures_that_every_seed_has_are_counted_for_each(tmp_path):
    finished(tmp_path, seeds=(3, 5))
    with toy_server(lambda request: (200, completion(""))) as server:
        judged = ["--mode", "judge", "--judge", "wise", "--judge-server", server.url]
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["score", str(tmp_path), *judged])
    said = " ".join(shown.output.split())
    assert "mode judge; rules 2026-06; judge wise, asked as strict;" in said
    assert "Each seed: The judge failed on 1 answer (mine 1)" in said


def test_folders_of_seeds_that_were_read_by_two_versions_are_refused_in_one_sentence(tmp_path):
    for name in ("a", "b"):
        finished(tmp_path / name, seeds=(0, 1, 2))
    for path in (tmp_path / "b").glob("seed-*/scorecard.json"):
        card = json.loads(path.read_text())
        path.write_text(json.dumps({**card, "made_with": {**card["made_with"], "reader": 1}}))
    with pytest.raises(ConfigError) as refused:
        compare(load_results(tmp_path / "a"), load_results(tmp_path / "b"))
    assert str(refused.value).count("another by version 1. Score both again") == 1


def test_every_seeds_problems_are_printed(tmp_path):
    finished(tmp_path, seeds=(3, 5))
    replies = iter(["", "", ""])  # to $B$ of the first seed; the second seed says the same
    with toy_server(lambda request: (200, completion(next(replies, "B")))) as server:
        judged = ["--mode", "judge", "--judge", "wise", "--judge-server", server.url]
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["score", str(tmp_path), *judged])
    assert "Seed 3: The judge failed on 1 answer (mine 1)" in shown.output
    assert "; seed 3, 5;" in shown.output
    assert "unread" in shown.output
    said = " ".join(shown.output.split())
    folder = tmp_path / "scored-judge-strict"
    assert f"seeds.json is in {folder}; scorecard.json and report.html are in {folder / 'seed-3'} and" in said


def judging(run, server):
    return ["score", str(run), "--mode", "judge", "--judge", "wise", "--judge-server", server.url]


@pytest.mark.parametrize("held", [".lock", "scored-judge-strict/.lock"])
def test_two_commands_do_not_ask_the_same_judge_at_once(tmp_path, held):
    finished(tmp_path)
    (tmp_path / held).parent.mkdir(exist_ok=True)
    with toy_server(lambda request: (200, completion("B"))) as server:
        with (tmp_path / held).open("w+") as file:
            file.write("process 1 on a machine")
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            shown = CliRunner(env={"COLUMNS": "400"}).invoke(app, judging(tmp_path, server))
            assert isinstance(shown.exception, RunError)
            said = r"in use by process 1 on a machine, another vcsd score or vcsd eval\. Wait for it or stop it"
            assert re.search(said, str(shown.exception))
        assert server.requests == []
        shown = CliRunner().invoke(app, judging(tmp_path, server))
    assert shown.exit_code == 0, shown.output
    assert len(server.requests) == 1


def test_an_answer_on_which_the_judges_server_fails_is_named_counted_and_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(chat, "FIRST_PAUSE", 0.0)
    finished(tmp_path)

    def crashes(request):
        is_poison = "$B$" in request["messages"][0]["content"]
        return (500, {"error": "CUDA error"}) if is_poison else (200, completion("B"))

    with toy_server(crashes) as server:
        shown = CliRunner(env={"COLUMNS": "400"}).invoke(app, judging(tmp_path, server))
    assert shown.exit_code == 0, shown.output
    assert "The judge failed on 1 answer (mine 1), counted as wrong" in shown.output
    assert 'The judge failed on mine \'3\': status 500: {"error": "CUDA error"}.' in shown.output
    card = load_scorecard(tmp_path / "scored-judge-strict" / "scorecard.json")
    assert (card.acc, card.benchmarks["mine"].counts.judge_failed) == (75.0, 1)
    with toy_server(lambda request: (200, completion("B"))) as server:
        shown = CliRunner(env={"COLUMNS": "400"}).invoke(app, judging(tmp_path, server))
    assert "judge failed" not in shown.output
    assert len(server.requests) == 1
    assert load_scorecard(tmp_path / "scored-judge-strict" / "scorecard.json").acc == 100.0


def test_a_refused_command_leaves_no_folder(tmp_path):
    finished(tmp_path / "run")
    with toy_server(lambda request: (200, completion("B"))) as server, (tmp_path / "run" / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shown = CliRunner().invoke(app, [*judging(tmp_path / "run", server), "--out", str(tmp_path / "out")])
    assert isinstance(shown.exception, RunError)
    assert not (tmp_path / "out").exists()


def test_a_run_whose_judge_is_asked_can_still_be_scored_by_rules(tmp_path):
    finished(tmp_path)
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert CliRunner().invoke(app, ["score", str(tmp_path), "--mode", "exact"]).exit_code == 0


def test_a_mistyped_run_is_not_made(tmp_path):
    with pytest.raises(ConfigError):
        rescore(tmp_path / "nowhere", Marking("final"), tmp_path / "nowhere" / "scored-final")
    assert not (tmp_path / "nowhere").exists()
