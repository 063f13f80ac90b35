"""The study: rules that settle, runs that resume, and what is recorded of deciding words."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny_language import plain_sprites, write_language, write_sprites
from vcsd.checkpoint import lock
from vcsd.emoji.captions import Shares
from vcsd.emoji.emoji_exam import SceneExam, scene_example
from vcsd.emoji.emoji_scenes import ScenePainter
from vcsd.emoji.questions import SUITES
from vcsd.emoji.seeing_model import TowerSize
from vcsd.emoji.smollm2 import language_identity, tokenizer_identity
from vcsd.emoji.sprites import sprites_identity
from vcsd.emoji.study import emoji_runs
from vcsd.emoji.study.emoji_bases import teach_planned
from vcsd.emoji.study.emoji_runs import EmojiStudy, alarms_by_suite, work_through
from vcsd.emoji.study.key_monitor import KEYS, KeyMonitor, key_position
from vcsd.emoji.study.settle import GATES, RunSetting, broken_gates, gain, is_wanted, settle, verdict, why_broken
from vcsd.emoji.study.study_list import EmojiRun, read_study
from vcsd.emoji.teach import CARD, TeachingPlan
from vcsd.errors import ConfigError
from vcsd.loss.statistics import Statistics
from vcsd.models.processor import load_processor
from vcsd.monitor.lines import Lines, read_lines

ROOT = Path(__file__).parents[3]
LIST = ROOT / "docs" / "results" / "language_runs.json"
RULES = ("docs/preregistration_{}.md", "docs/results/{}_runs.json")
DECIDES = ("src/vcsd/emoji/study/settle.py", "src/vcsd/emoji/study/study_list.py")


def suite_score(right):
    """A made-up score of 200 questions, of which the first ones are right."""
    num = round(2 * right)
    return {"right": right, "marks": "1" * num + "0" * (200 - num)}


def scores(default=95.0, **changed):
    right = dict.fromkeys(SUITES, default) | changed
    return {suite: suite_score(value) for suite, value in right.items()}


BASE = scores(unusual_prompted=20.0, unusual_unprompted=10.0)


def vcsd(gain=20.0, **changed):
    return scores(**{"unusual_prompted": 20.0 + gain, "unusual_unprompted": 10.0 + gain} | changed)


def test_every_suite_is_a_gate_but_those_that_should_gain():
    assert set(SUITES) - set(GATES) == {"unusual_prompted", "unusual_unprompted"}
    for suite in GATES:
        assert broken_gates(BASE, vcsd(**{suite: 90.0})) == [suite]


def test_a_gate_is_broken_only_by_more_than_the_margin_and_more_than_chance():
    before = suite_score(50.0)
    lost = {"right": 46.5, "marks": "0" * 27 + "1" * 73 + "1" * 20 + "0" * 80}  # 27 lost, 20 won
    assert broken_gates(BASE | {"count": before}, vcsd() | {"count": lost}) == []
    assert broken_gates(BASE | {"count": before}, vcsd() | {"count": suite_score(46.5)}) == ["count"]  # 7 lost, 0 won
    assert broken_gates(BASE | {"count": before}, vcsd() | {"count": suite_score(47.0)}) == []


def test_the_best_setting_that_passes_the_gates_is_taken():
    slow, good, broken = (RunSetting(rate, "0.1", 60) for rate in ("5e-6", "1e-5", "2e-5"))
    runs = {broken: vcsd(40.0, count=41.0), good: vcsd(20.0, count=93.0), slow: vcsd(10.0)}
    assert (settle(BASE, runs).setting, settle(BASE, runs).has_passed) == (good, True)


def test_equal_settings_are_settled_by_the_lower_rate_then_fewer_steps_then_the_larger_beta():
    runs = {
        RunSetting(rate, beta, steps): vcsd()
        for rate in ("1e-5", "5e-6")
        for beta in ("0.01", "0.1")
        for steps in (60, 30)
    }
    assert settle(BASE, runs).setting == RunSetting("5e-6", "0.1", 30)


def test_if_no_setting_passes_the_least_harmful_is_taken_and_said_to_fail():
    runs = {RunSetting("5e-6", "0.1", 60): vcsd(name=80.0), RunSetting("1e-5", "0.1", 60): vcsd(presence=90.0)}
    assert settle(BASE, runs).setting == RunSetting("1e-5", "0.1", 60)
    assert not settle(BASE, runs).has_passed


@pytest.mark.parametrize(
    ("result", "controls", "said"),
    [
        (vcsd(20.0), [BASE, BASE], "success"),
        (vcsd(4.0), [BASE, BASE], "no gain"),
        (vcsd(20.0), [BASE, vcsd(16.0)], "gain without the contrast"),
        (vcsd(20.0, count=41.0), [BASE, BASE], "breaks count"),
        (vcsd(20.0, place_named=80.0, usual_prompted=90.0), [BASE, BASE], "breaks usual_prompted, place_named"),
        (vcsd(20.0, count=92.0), [BASE, BASE], "success"),
    ],
)
def test_verdicts(result, controls, said):
    assert verdict(BASE, result, controls) == said


def test_a_gain_is_taken_question_by_question():
    change, width = gain(BASE, vcsd(20.0))
    assert change == pytest.approx(20.0)
    assert width == pytest.approx(196 * math.sqrt(0.2 * 0.8 * 400 / 399 / 400))


def test_a_target_that_is_wrong_before_training_is_the_contrasts_fault():
    assert why_broken({"original": 99.0, "target": 60.0}) == "contrast"
    assert why_broken({"original": 99.0, "target": 97.0}) == "training"


def test_a_base_must_see_the_colour_that_it_does_not_say():
    assert is_wanted(BASE)
    assert not is_wanted(scores())
    assert not is_wanted(BASE | {"place_named": suite_score(80.0)})
    assert not is_wanted(BASE | {"count": suite_score(80.0)})


def test_the_committed_list_has_the_planned_runs():
    listed = read_study(LIST)
    dev = [run for run in listed.runs if run.stage == "dev"]
    assert len(dev) == 1 + 3 * (2 + 1 + 1)
    assert len(listed.runs) - len(dev) == 5 * 6
    assert len({run.name for run in listed.runs}) == len(listed.runs)
    plans = {f"emoji-{seed}": TeachingPlan(seed, 500, 800, shares=Shares(fact=8)) for seed in (1, 2, 3, 4, 5)}
    assert listed.bases == plans
    assert listed.steps == (30, 60)
    assert listed.num_prompts == 60 * 32, "no prompt comes twice"
    final = [run.base for run in listed.runs if run.stage == "test"]
    assert final == sorted(final), "one base is finished before the next"


def test_a_list_that_makes_no_sense_is_refused(tmp_path):
    tree = json.loads(LIST.read_text())
    tree["final"]["variants"].append("magic")
    (tmp_path / "list.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="'magic' is not a variant"):
        read_study(tmp_path / "list.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    write_language(root / "language")
    sprites = write_sprites(root / "sprites.safetensors")
    shares, tower = Shares(3, 1, 0), TowerSize(32, 1, 2)
    plan = TeachingPlan(1, 1, 1, sight_batch=2, shares=shares, tower=tower, replay_rows=0)
    tree = {
        "language": language_identity(root / "language"),
        "tokenizer": tokenizer_identity(root / "language"),
        "sprites": sprites_identity(plain_sprites()),
        **{"bases": {"a": asdict(plan)}, "steps": [1, 2], "questions": 1, "prompts": 12},
        "settle": {"base": "a", "seed": 1, "rates": ["1e-5"], "betas": {"VCSD": ["0.1"]}},
        "final": {"seeds": {"a": 2}, "variants": ["base", "contrast decoding", "VCSD", "OPSD"]},
    }
    (root / "list.json").write_text(json.dumps(tree))
    paths = (root / "language", sprites, root / "bases")
    teach_planned(read_study(root / "list.json"), *paths, only=["a"], device="cpu", say=str)
    return root


SMALL = ("prompts_per_step=3", "rollout.num_per_prompt=2", "trainer.use_cpu=true")


def study_of(folder, out):
    listed = read_study(folder / "list.json", SMALL)
    return EmojiStudy(listed, folder / "bases", folder / "sprites.safetensors", out, SMALL)


def test_only_planned_bases_of_planned_things_are_taught(folder, tmp_path):
    listed = read_study(folder / "list.json")
    paths = (folder / "language", folder / "sprites.safetensors", tmp_path)
    with pytest.raises(ConfigError, match="'b' is not a planned base"):
        teach_planned(listed, *paths, only=["b"], device="cpu", say=str)
    for other in (replace(listed, **{part: "0"}) for part in ("language", "tokenizer", "sprites")):
        with pytest.raises(ConfigError, match="the list plans other things"):
            teach_planned(other, *paths, only=["a"], device="cpu", say=str)
    assert list(tmp_path.iterdir()) == []


def test_other_recipe_values_make_another_list(folder):
    assert read_study(folder / "list.json", SMALL).digest != read_study(folder / "list.json").digest


def test_runs_are_settled_made_once_and_written_about(folder, tmp_path):
    study = study_of(folder, tmp_path)
    assert study.settled() is None
    while study.prepare():
        pass
    made, failed = work_through(study, math.inf)
    assert (made, failed) == (6, [])
    setting = study.settled()["VCSD"].setting
    assert setting in {RunSetting("1e-5", "0.1", 1), RunSetting("1e-5", "0.1", 2)}
    assert work_through(study_of(folder, tmp_path), math.inf) == (0, [])
    dev = json.loads((tmp_path / "cells" / "dev-a-VCSD-lr_1e-5-beta_0.1.json").read_text())
    assert dev["scores_at"].keys() == {"1", "2"}
    assert dev["scores_at"]["2"] == dev["scores"]
    result = json.loads((tmp_path / "cells" / "test-a-VCSD.json").read_text())
    assert result["setting"] == asdict(setting)
    assert json.loads((tmp_path / "cells" / "test-a-OPSD.json").read_text())["setting"] == asdict(setting)
    assert result["scores"].keys() == SUITES.keys()
    assert result["measured"] == dev["measured"] == "bfloat16"
    assert (dev["unrounded_at"].keys(), result["unrounded_at"].keys()) == ({"1", "2"}, {str(setting.steps)})
    assert result["alarms"]["run"] == {"warn": None, "stop": None}
    assert set(result["key_contrast"]["count"]) > {"original", "control", "target", "flips", "control_says"}
    kept = tmp_path / "runs" / "dev-a-VCSD-lr_1e-5-beta_0.1"
    steps = {line["step"] for line in read_lines(kept / KEYS)}
    assert steps == {1, 2}
    assert sum(line["responses"] for line in read_lines(kept / KEYS)) == 2 * 3 * 2
    shutil.copytree(folder / "bases", tmp_path / "bases")
    weights = load_file(tmp_path / "bases" / "a" / "model.safetensors")
    save_file({name: 2 * weight for name, weight in weights.items()}, tmp_path / "bases" / "a" / "model.safetensors")
    again = EmojiStudy(study.listed, tmp_path / "bases", folder / "sprites.safetensors", tmp_path, SMALL)
    (tmp_path / "cells" / "test-a-VCSD.json").unlink()
    with pytest.raises(ConfigError, match=r"comes from other weights than .* are never mixed"):
        again.next_run()


def test_the_exam_measures_weights_as_they_are_exported(folder, tmp_path, monkeypatch):
    study, is_rounded, take = study_of(folder, tmp_path), [], SceneExam.take

    def watched(exam, model, method=None):
        is_rounded.append(all(torch.equal(weight, weight.bfloat16().float()) for weight in model.parameters()))
        return take(exam, model, method)

    monkeypatch.setattr(SceneExam, "take", watched)
    study.make(EmojiRun("dev", "VCSD", "a", 3, RunSetting("1e-3", "0.1", 2)))
    assert is_rounded[-2:] == [False, True], "those of the optimizer first, which count nowhere"
    assert is_rounded[1::2] == [True, True], "after one step and after two"


def test_weights_after_fewer_steps_are_those_of_a_shorter_run(folder, tmp_path):
    study, kept = study_of(folder, tmp_path), []
    for steps in (3, 2):  # the first step of the warm-up has a rate of zero
        run = EmojiRun("dev", "VCSD", "a", 3, RunSetting("1e-3", "0.1", steps))
        snapshots = emoji_runs.Snapshots([2])
        loaded = emoji_runs.recipe_run.load(study.recipe(run, run.setting, tmp_path / str(steps)))
        emoji_runs.recipe_run.train(loaded, callbacks=[snapshots])
        kept.append(snapshots.weights[2])
    longer, shorter = kept
    assert all(torch.equal(longer[name], shorter[name]) for name in longer)
    base = load_file(folder / "bases" / "a" / "model.safetensors")
    assert any(not torch.equal(longer[name], base[name].float()) for name in base)


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("VCSD", {"alpha": 1.0, "beta": 0.01, "anchor": 1.0, "target_view": "original"}),
        ("alpha 0", {"alpha": 0.0, "beta": 0.01, "anchor": 1.0, "target_view": "original"}),
        ("sharpened 2", {"alpha": 0.0, "beta": 0.01, "anchor": 2.0, "target_view": "original"}),
        ("OPSD", {"alpha": 0.0, "beta": 0.0, "anchor": 1.0, "target_view": "hint"}),
    ],
)
def test_variants_differ_in_their_method_and_in_nothing_else(folder, tmp_path, variant, expected):
    run = EmojiRun("test", variant, "a", 3)
    recipe = study_of(folder, tmp_path).recipe(run, RunSetting("2e-5", "0.01", 2), tmp_path / "work")
    method = {name: getattr(recipe.method, name) for name in expected}
    assert method == expected
    assert recipe.trainer["learning_rate"] == 2e-5
    assert (recipe.trainer["max_steps"], recipe.trainer["seed"]) == (2, 3)


def test_a_run_that_another_process_makes_is_left_to_it(folder, tmp_path):
    study = study_of(folder, tmp_path)
    work = tmp_path / "work" / study.next_run().name
    work.mkdir(parents=True)
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(work / lock.NAME)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "1\n"
        with pytest.raises(lock.InUseError):
            study.make(study.next_run())
    finally:
        other.communicate("\n")


def test_results_of_another_list_are_refused_everywhere(folder, tmp_path):
    study = study_of(folder, tmp_path)
    run = study.next_run()
    (tmp_path / "cells").mkdir()
    study.result_path(run).write_text(json.dumps({"list": "other", "scores": BASE}))
    for use in (study.settled, study.next_run, lambda: study.make(run), lambda: work_through(study, math.inf)):
        with pytest.raises(ConfigError, match=r"dev-a-base\.json is of another list\. Choose another --out\."):
            use()


@pytest.mark.parametrize("part", ["plan", "sprites", "language"])
def test_a_base_that_is_not_the_planned_one_is_refused(folder, tmp_path, part):
    shutil.copytree(folder / "bases", tmp_path / "bases")
    card = json.loads((tmp_path / "bases" / "a" / CARD).read_text())
    if part == "plan":
        card["plan"]["caption_steps"] = 2
    else:
        del card[part]
    (tmp_path / "bases" / "a" / CARD).write_text(json.dumps(card))
    listed = read_study(folder / "list.json")
    study = EmojiStudy(listed, tmp_path / "bases", folder / "sprites.safetensors", tmp_path / "out")
    with pytest.raises(ConfigError, match=f"not the planned base: it has another {part}. Teach it again"):
        study.next_run()


def test_a_list_must_plan_the_bases_of_its_runs(folder, tmp_path):
    tree = json.loads((folder / "list.json").read_text())
    tree["final"]["seeds"]["b"] = 3
    (tmp_path / "list.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="'b' is not among its bases"):
        read_study(tmp_path / "list.json")


@pytest.mark.parametrize(("failed", "status"), [(["dev-a-base"], 1), ([], 0)])
def test_the_exit_status_says_that_a_run_failed(folder, tmp_path, monkeypatch, capsys, failed, status):
    paths = {"--bases": folder / "bases", "--sprites": folder / "sprites.safetensors", "--out": tmp_path}
    arguments = [str(part) for pair in paths.items() for part in pair]
    monkeypatch.setattr(sys, "argv", ["emoji_runs", str(folder / "list.json"), *arguments])
    monkeypatch.setattr(emoji_runs, "work_through", lambda study, seconds: (0, failed))
    with pytest.raises(SystemExit) as left:
        emoji_runs.main()
    assert left.value.code == status
    assert f"0 runs made, {len(failed)} failed, 6 of 6 missing." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asks", "text", "word"),
    [
        ("count", "There are three things.", "three"),
        ("color", "The thing in the top left is blue.", "blue"),
        ("presence", "No, there is no fox.", "no"),
        ("presence", "I do not know. No.", "no."),
        ("color", "It is red, as the roof is covered.", "red,"),
        ("count", "There is one thing on the stone.", "one thing"),
    ],
)
def test_the_deciding_word_is_found_in_the_tokens(folder, asks, text, word):
    tokenizer = load_processor(folder / "bases" / "a").tokenizer
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    place = key_position(asks, ids, tokenizer)
    before = tokenizer.decode(ids[:place], skip_special_tokens=True)
    assert not before.lower().endswith(word)
    assert tokenizer.decode(ids[place:], skip_special_tokens=True).strip().lower().startswith(word)


def test_an_answer_without_a_deciding_word_has_no_place(folder):
    tokenizer = load_processor(folder / "bases" / "a").tokenizer
    assert key_position("count", tokenizer("Hm.", add_special_tokens=False)["input_ids"], tokenizer) is None
    assert key_position("count", [], tokenizer) is None


def observed(folder, flip_at_key):
    """A step with two answers to one counting question: the true one, and one with another number."""
    tokenizer = load_processor(folder / "bases" / "a").tokenizer
    example, asked = scene_example(ScenePainter(plain_sprites()), "dev", "count", 0)
    wrong = asked.sentence.replace(asked.key, "zero")
    responses = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (asked.sentence, wrong)]
    places = [key_position("count", response, tokenizer) for response in responses]
    num = sum(map(len, responses))
    changed = torch.zeros(num, dtype=torch.bool)
    if flip_at_key:
        changed[places[0]] = changed[len(responses[0]) + places[1]] = True
    column = torch.arange(num, dtype=torch.float32)
    statistics = Statistics(column, column.int(), column, changed, column, None)
    scored = [(example.id, response) for response in responses]
    seen = SimpleNamespace(step=1, examples=[example], statistics=[statistics], scored=scored)
    return tokenizer, seen, asked, places, responses


@pytest.mark.parametrize("flip_at_key", [True, False])
def test_the_monitor_records_the_deciding_word_apart(folder, tmp_path, flip_at_key):
    tokenizer, seen, asked, places, responses = observed(folder, flip_at_key)
    monitor = KeyMonitor(tmp_path, tokenizer)
    assert monitor.observe(seen) == {}
    (line,) = read_lines(tmp_path / KEYS)
    assert (line["suite"], line["responses"], line["right"], line["keys"]) == ("count", 2, 50.0, 2)
    assert line["said"] == {asked.key: 1, "zero": 1}
    assert line["flips"] == float(flip_at_key)
    wanted = (places[0] + len(responses[0]) + places[1]) / 2
    assert line["key"]["kl_target_original"] == pytest.approx(wanted)
    assert "realised_contrast" not in line["all"]


def test_a_step_with_other_tokens_than_statistics_is_left_out_with_a_warning(folder, tmp_path, caplog):
    tokenizer, seen, *_ = observed(folder, flip_at_key=False)
    seen.scored = seen.scored[:1]
    assert KeyMonitor(tmp_path, tokenizer).observe(seen) == {}
    assert not (tmp_path / KEYS).exists() or read_lines(tmp_path / KEYS) == []
    assert "so keys.jsonl has no line for it" in caplog.text


def test_a_resumed_monitor_repeats_no_line(folder, tmp_path):
    tokenizer, seen, *_ = observed(folder, flip_at_key=False)
    monitor = KeyMonitor(tmp_path, tokenizer)
    for step in (1, 2, 3):
        monitor.observe(SimpleNamespace(**vars(seen) | {"step": step}))
    again = KeyMonitor(tmp_path, tokenizer)
    again.restore({}, 1)
    again.observe(SimpleNamespace(**vars(seen) | {"step": 2}))
    assert [line["step"] for line in read_lines(tmp_path / KEYS)] == [1, 2]


def test_a_guard_of_one_suite_sees_what_the_mean_hides(tmp_path):
    lines = Lines(tmp_path / KEYS)
    for step in range(1, 41):
        for suite, kl in (("any_color", 0.1), ("count", 0.1 if step <= 15 else 0.5)):
            lines.append({"step": step, "suite": suite, "all": {"kl_target_original": kl}})
    alarms = alarms_by_suite(tmp_path / KEYS)
    assert alarms["any_color"] == {"warn": None, "stop": None}
    assert 15 < alarms["count"]["warn"] < alarms["count"]["stop"]


def git(*arguments):
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else None


@pytest.mark.parametrize("study", ["language", "language_exported"])
def test_the_rules_were_committed_before_the_results(study):
    if git("rev-parse", "--is-shallow-repository") != ["false"]:
        pytest.skip("the history is not here")
    rules = [*(rule.format(study) for rule in RULES), *DECIDES]
    assert all((ROOT / rule).is_file() for rule in rules)
    for path in sorted((ROOT / "docs" / "results" / study).glob("cells/*.json")):
        added = git("log", "--diff-filter=A", "--format=%H", "--", str(path))
        for rule in rules if added else ():
            (changed,) = git("log", "-1", "--format=%H", "--", rule)
            assert changed != added[-1], f"{rule} and {path.name} came together"
            assert git("merge-base", "--is-ancestor", changed, added[-1]) is not None, (
                f"{rule} changed after {path.name}"
            )


def test_settings_are_recipe_changes():
    assert RunSetting("2e-5", "0.1", 30).overrides() == (
        "trainer.learning_rate=2e-5",
        "trainer.max_steps=30",
        "method.beta=0.1",
    )
