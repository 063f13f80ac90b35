"""A run that was stopped and resumed is the run that was not: bit for bit."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from forked_python import run_python
from tiny_models import build_model
from tiny_processor import write_processor_files
from tiny_step import losses_of, make_examples, make_trainer
from vcsd.checkpoint import checkpoints_of, lock
from vcsd.checkpoint.export import export
from vcsd.checkpoint.state import optimizer_state
from vcsd.errors import ConfigError
from vcsd.method import METHODS
from vcsd.models.freeze import freeze
from vcsd.models.processor import load_processor
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings
from vcsd.teacher import fingerprint, named_tensors

SCRIPT = Path(__file__).parent / "killed_run.py"
SAVES = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6, "warmup_steps": 5}


def digest(trainer):
    moments, _ = optimizer_state(trainer.optimizer, trainer.model)
    return {
        "losses": losses_of(trainer),
        "student": fingerprint(named_tensors(trainer.model)),
        "teacher": fingerprint(named_tensors(trainer.teacher.module)),
        "optimizer": fingerprint(dict(sorted(moments.items()))),
        "cursor": trainer.progress.cursor,
        "updates": trainer.teacher.num_updates,
    }


def frozen_vision():
    model = build_model()
    freeze(model, "vision", "projector")
    return model


CASES = {
    "vcsd": dict,
    "bfloat16": lambda: {"arguments": {"bf16": True}},
    "qwen3_5": lambda: {"model": build_model("qwen3_5")},
    "frozen vision": lambda: {"model": frozen_vision()},
    "student as teacher": lambda: {"method": replace(METHODS["vcsd"], teacher="current")},
    "periodic teacher": lambda: {"method": replace(METHODS["vcsd"], teacher="periodic", teacher_every=3)},
    "noise": lambda: {"method": replace(METHODS["vcsd"], contrast_view="noise")},
    "small rows": lambda: {"token_budget": 60},
}


def trainer_of(case, folder, **arguments):
    given = CASES[case]()
    arguments = {**SAVES, **given.pop("arguments", {}), **arguments}
    return make_trainer(folder, arguments=arguments, **given)


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_the_uninterrupted_run(tmp_path, case):
    short = {"max_steps": 4, "warmup_steps": 3}
    whole = trainer_of(case, tmp_path / "whole", **short)
    whole.train()
    trainer_of(case, tmp_path / "parts", **{**short, "max_steps": 2}).train()
    torch.manual_seed(99)  # the global generators are part of the checkpoint
    resumed = trainer_of(case, tmp_path / "parts", **short)
    resumed.train("auto")
    assert digest(resumed) == digest(whole)
    assert len(losses_of(resumed)) == 4


def killed(tmp_path, *numbers):
    out = run_python(SCRIPT, tmp_path, *numbers)
    assert out.returncode == 0, out.stderr[-3000:]
    return json.loads(out.stdout)


def check_killed(found, num_kills, num_inside):
    assert len(found["hits"]) >= num_kills
    assert found["hits"].count("save") >= num_inside
    assert found["parts"] == found["whole"]


def test_kills_inside_a_save_and_between_change_nothing(tmp_path):
    check_killed(killed(tmp_path, 12, 2, 1, 0), 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_kills_change_nothing(tmp_path, seed):
    check_killed(killed(tmp_path, 60, 10, 3, seed), 10, 3)


def test_a_run_folder_holds_no_pickle(tmp_path):
    make_trainer(tmp_path, arguments=SAVES).train()
    names = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != lock.NAME]
    assert {path.suffix for path in names} <= {".json", ".jsonl", ".safetensors", ".jinja"}
    for path in names:
        assert not path.read_bytes().startswith((b"\x80", b"PK")), path


def test_whoever_draws_from_the_global_generators_draws_the_same_after_a_resume(tmp_path):
    class Gambler:
        """It draws in every step, as a dropout or another's callback would."""

        def __init__(self):
            self.drawn = []

        def observe(self, seen):
            self.drawn.append((torch.rand(()).item(), random.random(), np.random.random()))
            return {}

        def state(self):
            return {}

        def restore(self, state, step):
            pass

    whole, first, second = Gambler(), Gambler(), Gambler()
    make_trainer(tmp_path / "whole", arguments=SAVES, monitors=[whole]).train()
    make_trainer(tmp_path / "parts", arguments={**SAVES, "max_steps": 4}, monitors=[first]).train()
    make_trainer(tmp_path / "parts", arguments=SAVES, monitors=[second]).train("auto")
    assert len({*whole.drawn}) == 6
    assert first.drawn + second.drawn == whole.drawn


def test_a_smaller_token_budget_is_taken_over_by_a_resumed_run_and_a_halved_one_kept(tmp_path):
    first = make_trainer(tmp_path, arguments={**SAVES, "max_steps": 2}, token_budget=100)
    first.progress.token_budget = 70  # as after running out of memory
    first.train()
    for wanted, expected in ((100, 70), (50, 50), (None, 70)):
        trainer = make_trainer(
            tmp_path, arguments={**SAVES, "max_steps": 3, "save_strategy": "no"}, token_budget=wanted
        )
        trainer.train("auto")
        assert trainer.progress.token_budget == expected


def test_another_runs_checkpoint_is_refused_by_what_differs(tmp_path):
    make_trainer(tmp_path, arguments=SAVES).train()
    with pytest.raises(ConfigError, match=r"method.alpha was 1.0 and is now 0.5"):
        make_trainer(tmp_path, arguments=SAVES, method=replace(METHODS["vcsd"], alpha=0.5)).train("auto")
    with pytest.raises(ConfigError, match="another run: the model, or which of its parts are frozen, changed"):
        make_trainer(tmp_path, arguments=SAVES, model=frozen_vision()).train("auto")
    with pytest.raises(ConfigError, match="data was 5 and is now 4"):
        make_trainer(tmp_path, arguments=SAVES, train_dataset=make_examples(4)).train("auto")
    warmer = RolloutSettings(Sampling(max_new_tokens=7, temperature=1.5), 3, seed=0)
    with pytest.raises(ConfigError) as error:
        make_trainer(
            tmp_path,
            arguments={**SAVES, "learning_rate": 2e-3},
            rollout=warmer,
            prompts_per_step=2,
            prompt_settings={"max_tokens": 900},
        ).train("auto")
    for name in ("rollout.sampling.temperature", "prompts_per_step", "prompt_settings", "args.learning_rate"):
        assert name in str(error.value)


def in_epochs(folder, num, **changes):
    """Train a run that is counted in epochs of two steps."""
    arguments = {"max_steps": -1, "num_train_epochs": num, "save_strategy": "steps", "save_steps": 1, **changes}
    trainer = make_trainer(folder, prompts_per_step=2, arguments=arguments)
    trainer.train("auto")
    return trainer


def test_a_finished_run_that_ends_within_an_epoch_is_not_trained_further(tmp_path):
    first = in_epochs(tmp_path, 2.5)
    again = in_epochs(tmp_path, 2.5)
    assert (first.state.global_step, again.state.global_step) == (5, 5)
    assert fingerprint(named_tensors(again.model)) == fingerprint(named_tensors(first.model))
    assert not (tmp_path / "checkpoint-6").exists()


def test_a_run_does_not_resume_with_other_epochs_if_its_learning_rate_depends_on_them(tmp_path):
    in_epochs(tmp_path / "linear", 1, lr_scheduler_type="linear")
    with pytest.raises(ConfigError, match=r"args.num_train_epochs, in steps, was 2 and is now 4. Restore"):
        in_epochs(tmp_path / "linear", 2, lr_scheduler_type="linear")
    in_epochs(tmp_path / "constant", 1)
    assert in_epochs(tmp_path / "constant", 2).state.global_step == 4


def test_a_run_does_not_become_longer_if_its_warm_up_is_a_share_of_it(tmp_path):
    share, none = {**SAVES, "warmup_steps": 0.5}, {**SAVES, "warmup_steps": 0.5, "lr_scheduler_type": "constant"}
    for name, arguments in (("share", share), ("none", none)):
        make_trainer(tmp_path / name, arguments={**arguments, "max_steps": 2}).train()
        make_trainer(tmp_path / name, arguments={**arguments, "max_steps": 2}).train("auto")
    with pytest.raises(ConfigError, match=r"args.max_steps was 2 and is now 4. Restore"):
        make_trainer(tmp_path / "share", arguments={**share, "max_steps": 4}).train("auto")
    make_trainer(tmp_path / "none", arguments={**none, "max_steps": 4}).train("auto")  # has no warm-up


def test_a_run_does_not_resume_with_other_settings_of_its_schedule(tmp_path):
    schedule = {**SAVES, "lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-4}}
    make_trainer(tmp_path, arguments=schedule).train()
    make_trainer(tmp_path, arguments=schedule).train("auto")
    with pytest.raises(ConfigError, match=r"args.lr_scheduler_kwargs.min_lr was 0.0001 and is now 0.0009. Restore"):
        make_trainer(tmp_path, arguments={**schedule, "lr_scheduler_kwargs": {"min_lr": 9e-4}}).train("auto")


def harm(checkpoint, what):
    if what == "no teacher":
        (checkpoint / "teacher.safetensors").unlink()
    elif what == "changed byte":
        content = bytearray((checkpoint / "student.safetensors").read_bytes())
        content[-1] ^= 1
        (checkpoint / "student.safetensors").write_bytes(content)
    elif what == "empty":
        shutil.rmtree(checkpoint)
        checkpoint.mkdir()
    elif what == "no manifest":
        (checkpoint / "manifest.json").unlink()
    elif what == "files not listed":
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        (checkpoint / "manifest.json").write_text(json.dumps({**manifest, "files": {}}))
    else:
        shutil.rmtree(checkpoint)
        shutil.copytree(checkpoint.with_name("checkpoint-2"), checkpoint)


HARMS = ["no teacher", "changed byte", "empty", "no manifest", "files not listed", "copy of another step"]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    trainer = make_trainer(folder, arguments=SAVES)
    trainer.train()
    return folder, digest(trainer)


@pytest.mark.parametrize("what", HARMS)
def test_a_damaged_checkpoint_is_moved_aside_and_the_one_before_resumed(tmp_path, whole_run, caplog, what):
    folder, expected = whole_run
    shutil.copytree(folder, tmp_path / "run")
    harm(tmp_path / "run" / "checkpoint-6", what)
    resumed = make_trainer(tmp_path / "run", arguments=SAVES)
    resumed.train("auto")
    assert digest(resumed) == expected
    assert {path.name for path in (tmp_path / "run").glob("*checkpoint-*")} == {
        *("checkpoint-2", "checkpoint-4", "checkpoint-6", "damaged-checkpoint-6")
    }
    assert "checkpoint-6 is damaged: " in caplog.text
    assert "It is now damaged-checkpoint-6; resuming from checkpoint-4." in caplog.text


def test_several_damaged_checkpoints_are_moved_aside_and_an_earlier_one_of_that_name_stays(tmp_path, whole_run):
    shutil.copytree(whole_run[0], tmp_path / "run")
    for name in ("checkpoint-6", "checkpoint-99", "damaged-checkpoint-99"):
        shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
        (tmp_path / "run" / name).mkdir()
    resumed = make_trainer(tmp_path / "run", arguments={**SAVES, "save_total_limit": 2})
    resumed.train("auto")
    assert digest(resumed) == whole_run[1]
    assert {path.name for path in (tmp_path / "run").glob("damaged-*")} == {
        *("damaged-checkpoint-6", "damaged-checkpoint-99", "damaged-checkpoint-99-2")
    }


def test_a_run_of_which_nothing_is_whole_is_not_begun_anew(tmp_path):
    (tmp_path / "checkpoint-99").mkdir()
    with pytest.raises(ConfigError, match=r"no checkpoint in .* is whole: checkpoint-99: its manifest cannot be read"):
        make_trainer(tmp_path, arguments=SAVES).train("auto")
    assert (tmp_path / "checkpoint-99").is_dir()


def test_another_run_is_refused_even_if_its_latest_checkpoint_is_damaged(tmp_path, whole_run):
    shutil.copytree(whole_run[0], tmp_path / "run")
    harm(tmp_path / "run" / "checkpoint-6", "empty")
    with pytest.raises(ConfigError, match=r"checkpoint-4 belongs to another run: method.alpha was 1.0"):
        make_trainer(tmp_path / "run", arguments=SAVES, method=replace(METHODS["vcsd"], alpha=0.5)).train("auto")
    assert (tmp_path / "run" / "checkpoint-6").is_dir()


def test_a_damaged_checkpoint_that_is_asked_for_by_its_path_is_refused(tmp_path, whole_run):
    shutil.copytree(whole_run[0], tmp_path / "run")
    harm(tmp_path / "run" / "checkpoint-6", "no teacher")
    with pytest.raises(ConfigError, match=r"checkpoint-6 is damaged: teacher.safetensors is missing. Remove"):
        make_trainer(tmp_path / "run", arguments=SAVES).train(str(tmp_path / "run" / "checkpoint-6"))


def test_a_folder_with_checkpoints_is_not_begun_anew(tmp_path):
    make_trainer(tmp_path, arguments=SAVES).train()
    with pytest.raises(ConfigError, match="already holds checkpoint-6"):
        make_trainer(tmp_path, arguments=SAVES).train()


def test_auto_begins_where_there_is_nothing_and_true_demands_a_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path / "a", arguments={"max_steps": 1})
    trainer.train("auto")
    assert trainer.state.global_step == 1
    with pytest.raises(ConfigError, match="holds no checkpoint to resume from"):
        make_trainer(tmp_path / "b").train(True)


@pytest.mark.parametrize("is_greater_better", [False, True])
def test_old_checkpoints_go_but_the_best_and_the_last_good_one_stay(tmp_path, is_greater_better):
    class Worried:
        last_good_step = None

        def observe(self, seen):
            if seen.step == 5:
                self.last_good_step = 4
            badness = (9, 1, 2, 2, 2, 2)[seen.step - 1]  # the mean of all so far would be best at the end
            return {"quality": -badness if is_greater_better else badness}

        def state(self):
            return {}

    limits = {"save_steps": 1, "save_total_limit": 1, "metric_for_best_model": "quality"}
    limits["greater_is_better"] = is_greater_better
    make_trainer(tmp_path, arguments={**SAVES, **limits}, monitors=[Worried()]).train()
    assert list(checkpoints_of(tmp_path)) == [2, 4, 5, 6]  # no step has tried the weights of step 6 yet


@pytest.fixture(scope="module")
def exported_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    processor = load_processor(write_processor_files(folder / "model"))
    trainer = make_trainer(folder / "run", arguments=SAVES, processing_class=processor)
    trainer.train()
    return folder, trainer


@pytest.mark.parametrize("what", ["student", "teacher"])
def test_an_exported_folder_loads_as_any_model(exported_run, tmp_path, what):
    folder, trainer = exported_run
    checkpoint = export(folder / "run", tmp_path / "out", what=what, dtype="float32")
    assert checkpoint.name == "checkpoint-6"
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "out")
    original = trainer.model if what == "student" else trainer.teacher.module
    expected = named_tensors(original)
    found = named_tensors(model)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    assert model.generation_config.eos_token_id == trainer.model.generation_config.eos_token_id
    for name in ("tokenizer.json", "preprocessor_config.json", "chat_template.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / "model" / name).read_bytes()
    load_processor(tmp_path / "out")
    AutoTokenizer.from_pretrained(tmp_path / "out")


def test_exports_are_in_half_precision_unless_asked(exported_run, tmp_path):
    folder, _ = exported_run
    export(folder / "run" / "checkpoint-4", tmp_path / "out")
    assert AutoModelForImageTextToText.from_pretrained(tmp_path / "out").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"what": "teachr"}, "Did you mean 'teacher'"),
        ({"dtype": "int4"}, "dtype = 'int4' is not a choice"),
    ],
    ids=str,
)
def test_an_export_that_cannot_be_says_so(exported_run, tmp_path, given, message):
    folder, _ = exported_run
    with pytest.raises(ConfigError, match=message):
        export(folder / "run", tmp_path / "out", **given)


def test_an_export_overwrites_nothing(exported_run, tmp_path):
    folder, _ = exported_run
    (tmp_path / "kept.txt").write_text("mine")
    for taken in (tmp_path, tmp_path / "kept.txt"):
        with pytest.raises(ConfigError, match="is not an empty folder"):
            export(folder / "run", taken)
    with pytest.raises(ConfigError, match="holds no checkpoint"):
        export(tmp_path, tmp_path / "out")
    assert (tmp_path / "kept.txt").read_text() == "mine"
