"""VCSDTrainer takes what people have, and checks it before it loads weights."""

import fcntl
import inspect
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from tiny_examples import picture
from tiny_step import make_examples, training_arguments
from vcsd import VCSDTrainer, inputs
from vcsd.bases.shipped_bases import shipped_base
from vcsd.checkpoint.lock import NAME, InUseError
from vcsd.errors import ConfigError
from vcsd.inspect.run_folder import read_run
from vcsd.method import TRAINER_DEFAULTS
from vcsd.parallel import ranks
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings
from vcsd.trainer import DistillationTrainer

BASE = shipped_base("qwen3_vl")
ROLLOUT = RolloutSettings(Sampling(max_new_tokens=4), 2)
ROWS = [
    {
        "messages": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What color is the circle?"}]},
            {"role": "assistant", "content": "red"},
        ],
        "images": [picture(64, 64)],
    }
] * 3


class Pairs:
    """A data set of torch, whose rows have no column names."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return picture(), "What?"


def build(folder, model=BASE, *, args=None, **changes):
    given = {"train_dataset": ROWS, "rollout": ROLLOUT, "prompts_per_step": 2, **changes}
    args = training_arguments(folder, max_steps=1) if args is None else args
    return VCSDTrainer(model, args, **given)


def test_a_run_from_a_folder_and_rows_leaves_a_folder_that_explains_itself(tmp_path):
    trainer = build(tmp_path / "run", method="no_contrast")
    trainer.train()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1]
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (settings["method"]["name"], settings["rollout"]["num_per_prompt"]) == ("no_contrast", 2)
    assert settings["model"] == {"path": str(BASE)}
    assert settings["data"] == {"kind": "list in memory", "num_rows": len(ROWS)}
    assert trainer.stream.rows[0].answer == "red"


def test_only_rank_0_writes_the_settings_and_a_kill_leaves_the_former_ones(tmp_path, monkeypatch):
    trainer = build(tmp_path)
    monkeypatch.setattr(DistillationTrainer, "train", lambda *given, **named: None)
    with monkeypatch.context() as other_rank:
        other_rank.setattr(ranks, "is_first", lambda: False)
        trainer.train()
    assert not (tmp_path / "config.json").exists()
    trainer.train()
    before = (tmp_path / "config.json").read_text()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    trainer.method = replace(trainer.method, alpha=0.5)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert (tmp_path / "config.json").read_text() == before


class Longest:
    """The monitor of docs/monitoring.md."""

    def observe(self, seen):
        return {"longest": float(max(len(tokens) for _, tokens in seen.scored))}


class Silent:
    def observe(self, seen):
        assert seen.metrics["longest"] > 0, "a monitor sees what those before it returned"


def test_metrics_of_a_monitor_before_the_watch_are_in_the_run_folder(tmp_path):
    trainer = build(tmp_path)
    trainer.monitors = [Longest(), Silent(), *trainer.monitors]
    trainer.train("auto")
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["longest"] > 0
    again = build(tmp_path, args=training_arguments(tmp_path, max_steps=2))
    again.monitors = [Longest(), Silent(), *again.monitors]
    again.train("auto")
    assert again.state.global_step == 2


def test_the_bar_ends_where_a_run_that_is_counted_in_epochs_does(tmp_path):
    args = training_arguments(tmp_path, max_steps=-1, num_train_epochs=1.25)
    trainer = build(tmp_path, args=args)
    trainer.train()
    assert trainer._watch._max_steps == trainer.state.global_step == 2
    assert (read_run(tmp_path).max_steps, read_run(tmp_path).state) == (2, "finished")


def test_a_folder_in_use_is_refused_before_anything_in_it_changes(tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoint-7").mkdir(parents=True)  # damaged, so that resuming would move it aside
    (folder / "config.json").write_text("{}")
    (folder / NAME).write_text("process 1 on a machine\n")
    with (folder / NAME).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InUseError, match="in use by process 1 on a machine"):
            build(folder).train("auto")
    assert (folder / "config.json").read_text() == "{}"
    assert sorted(path.name for path in folder.iterdir()) == [NAME, "checkpoint-7", "config.json"]


def test_every_rank_loads_the_weights_whatever_accelerate_is_configured_to_do(tmp_path, monkeypatch):
    """With FSDP, accelerate's launcher asks transformers to load them on rank 0 alone."""
    for name, value in {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    asked = []

    def load(folder, dtype):
        asked.append(os.environ.get("ACCELERATE_USE_FSDP"))
        raise ConfigError(["loaded"])

    monkeypatch.setattr(inputs, "load_model", load)
    with pytest.raises(ConfigError, match="loaded"):
        build(tmp_path)
    assert asked == [None]


def test_every_part_that_the_inner_trainer_takes_can_be_given():
    given = set(inspect.signature(VCSDTrainer.__init__).parameters)
    assert set(inspect.signature(DistillationTrainer.__init__).parameters) - given == set()


def test_num_generations_is_the_number_of_rollouts(tmp_path):
    assert build(tmp_path, rollout=None, num_generations=3).rollout.num_per_prompt == 3


@dataclass
class Config(TrainingArguments):
    """Stands for TRL's configurations, which add fields that nobody here would read."""

    num_generations: int = 8


def test_arguments_of_transformers_that_never_log_or_save_in_a_short_run_are_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(DistillationTrainer, "train", lambda *given, **named: None)
    caplog.set_level("WARNING", logger="vcsd")
    tracked = {"report_to": ["tensorboard"], "use_cpu": True, "bf16": False}
    build(tmp_path, args=TrainingArguments(str(tmp_path), max_steps=90, **tracked)).train()
    assert "logging_steps = 500 and save_steps = 500, but the run has 90 steps: tensorboard would get no metrics, " in (
        caplog.text
    )
    assert "no checkpoint would be saved before the end. The value in vcsd.method.TRAINER_DEFAULTS is 1 and 10." in (
        caplog.text
    )
    caplog.clear()
    for named in (
        {**TRAINER_DEFAULTS, **tracked},
        {"use_cpu": True, "max_steps": 600, **tracked},
        {"use_cpu": True, "max_steps": 5},
        {"use_cpu": True, "max_steps": 90, "save_strategy": "no"},
    ):
        build(tmp_path, args=TrainingArguments(**{**named, "output_dir": str(tmp_path)})).train()
    assert "but the run has" not in caplog.text


def test_a_configuration_of_another_trainer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="args is Config, whose fields num_generations would be ignored"):
        build(tmp_path, args=Config(str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "vscd"}, "method = 'vscd' is not a method. Did you mean 'vcsd'?"),
        ({"train_dataset": None}, "train_dataset is missing. Give Examples"),
        ({"train_dataset": {"train": ROWS}}, "Pass one split, such as dataset['train']"),
        ({"train_dataset": ROWS[:1]}, "prompts_per_step = 2, but the data has only 1 rows"),
        ({"train_dataset": make_examples(1)}, "prompts_per_step = 2, but the data has only 1 rows"),
        ({"eval_dataset": ROWS}, "eval_dataset cannot be used. Score the run with `vcsd eval OUTPUT_DIR"),
        ({"reward_funcs": len}, "VCSD needs no rewards"),
        ({"tokenizer": "x"}, "tokenizer cannot be used. Pass the model's processor as processing_class"),
        ({"ref_model": "x"}, "The teacher starts as a copy of the student"),
        ({"max_completion_length": 8}, "Pass rollout=RolloutSettings(Sampling(max_new_tokens=N), 8)."),
        ({"train_dataset": lambda: ROWS}, "train_dataset is function. Give Examples"),
        ({"train_dataset": Pairs()}, "train_dataset holds tuple, not dictionaries with columns"),
        ({"train_dataset": DataLoader(Pairs())}, "train_dataset is a DataLoader. Pass its dataset"),
        ({"train_dataset": ["a", "b"]}, "train_dataset holds str, not dictionaries with columns"),
        ({"prompts_per_step": "2"}, "prompts_per_step = '2' must be a whole number of at least 1."),
        ({"prompts_per_step": 2.5}, "prompts_per_step = 2.5 must be a whole number of at least 1."),
        ({"token_budget": 0}, "token_budget = 0 must be a whole number of at least 1."),
        ({"peft_config": {"r": 8}}, "peft_config is dict. Pass peft.LoraConfig(r=32), or leave it out."),
        ({"monitors": print}, "Pass a list of monitors, or leave it out."),
        ({"monitors": [print]}, "which has no method observe."),
        ({"callbacks": print}, "Pass a list of callbacks, or leave it out."),
        ({"skips": "skipped.jsonl"}, "skips is str. Pass vcsd.data.Skips(FILE), or leave it out."),
        ({"teacher": "Qwen/x"}, "teacher is str. Pass vcsd.teacher.Teacher(...), or leave it out."),
        ({"vllm": True}, "vllm is bool. Pass vcsd.rollout.vllm.start_target.VLLMSettings(...), or leave it out."),
        ({"prompt_settings": {"max_token": 5}}, "prompt_settings has no 'max_token'. Did you mean 'max_tokens'?"),
        ({"prompt_settings": ["max_tokens"]}, "prompt_settings is list. Pass a dictionary such as {'max_t"),
        ({"method": {"vcsd": 1}}, "For other values: dataclasses.replace(METHODS['vcsd'], alpha=...)."),
        ({"beta": 0.5}, "no argument 'beta'. Pass method=dataclasses.replace(METHODS['vcsd'], beta=...)."),
        ({"learning_rate": 1e-5}, "no argument 'learning_rate'. Pass it in args=TrainingArguments(...)."),
        ({"model": "world"}, 'For the shipped base, pass vcsd.bases.shipped_bases.shipped_base("qwen3_vl").'),
        ({"train_dataset": [{"text": "?", "image": "a.png"}] * 2}, "Rename a column to 'prompt'."),
        ({"num_generation": 2}, "VCSDTrainer has no argument 'num_generation'. Did you mean 'num_generations'?"),
        ({"num_generations": 2}, "num_generations and rollout are both given"),
        ({"rollout": None, "num_generations": 0}, "num_generations = 0 must be a whole number of at least 1"),
        ({"rollout": None, "num_generations": True}, "num_generations = True must be a whole number of at least 1"),
        ({"dither": "false"}, "dither = 'false' must be True or False."),
        ({"offload": 1}, "offload = 1 must be True or False."),
        ({"rollout": 8}, "rollout is int. Pass vcsd.step.RolloutSettings"),
        ({"args": {"max_steps": 1}}, "args is dict. Pass transformers.TrainingArguments"),
        ({"model": 7}, "model is int. Give a folder, a hub id or a loaded model."),
        ({"model": "nowhere/at/all"}, "model = 'nowhere/at/all': there is no such folder"),
        ({"processing_class": "BASE tokenizer"}, "which cannot read images. Pass the model's processor"),
        ({"method": "opsd", "train_dataset": [{"prompt": "?", "image": picture()}] * 2}, "shows the column 'answer'"),
        ({"train_dataset": [{"prompt": "?", "image": "a.png"}] * 2}, "there is no file 'a.png'. All are listed in"),
    ],
)
def test_what_is_wrong_is_said_before_weights_are_loaded(tmp_path, monkeypatch, changes, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vcsd.inputs.load_model", lambda *_: pytest.fail("weights were loaded"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", _refuse)
    if changes.get("processing_class") == "BASE tokenizer":
        from transformers import AutoTokenizer

        changes = {**changes, "processing_class": AutoTokenizer.from_pretrained(BASE)}
    with pytest.raises(ConfigError) as error:
        build(tmp_path / "run", **changes)
    assert words in str(error.value)


def _refuse(name):
    raise OSError(f"{name} is not on the hub")


def test_a_folder_without_a_vision_tower_is_refused(tmp_path):
    folder = Path(tmp_path / "text")
    folder.mkdir()
    for content, words in (
        (None, "holds no config.json"),
        ('{"model_type": "qwen3"}', "(qwen3) has no vision tower"),
        ('{"prompts_per_step": 4, "model": {}}', "text holds a run. Give the folder of a whole model"),
        ("{", "is not JSON"),
    ):
        if content is not None:
            (folder / "config.json").write_text(content)
        with pytest.raises(ConfigError) as error:
            build(tmp_path / "run", folder)
        assert words in str(error.value)


@pytest.mark.parametrize("resume", ["latest", "nowhere/checkpoint-3", 10])
def test_what_is_not_a_checkpoint_is_not_resumed_from(tmp_path, resume):
    with pytest.raises(ConfigError, match=r"is not the folder of a checkpoint. Pass one, True, or \"auto\""):
        build(tmp_path).train(resume)


def test_arguments_are_named_as_in_python(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file is not a folder. Choose another args.output_dir."):
        build(tmp_path, args=TrainingArguments(str(tmp_path / "file"), max_steps=1, use_cpu=True))
    with pytest.raises(ConfigError, match=r"args.seed = -1 is not a seed."):
        build(tmp_path, args=training_arguments(tmp_path, seed=-1))


def test_rows_that_cannot_be_used_are_listed_with_a_path_and_a_fix(tmp_path):
    rows = [{"prompt": "?", "image": f"images/{number}.png"} for number in range(3)]
    with pytest.raises(ConfigError) as error:
        build(tmp_path / "run", train_dataset=rows)
    skipped = tmp_path / "run" / "skipped.jsonl"
    assert str(error.value) == (
        "none of the first 3 rows of train_dataset can be used (3 missing_file). The first: example "
        f"'train_dataset-00000000': there is no file 'images/0.png'. All are listed in {skipped}. "
        "Correct the paths, or start Python in the folder that they start from."
    )
    assert len(skipped.read_text().splitlines()) == 3


def test_rank_0_alone_lists_rows_that_cannot_be_used(tmp_path, monkeypatch):
    monkeypatch.setattr("vcsd.trainer.trainer.is_first", lambda: False)
    with pytest.raises(ConfigError, match="none of the first"):
        build(tmp_path / "run", train_dataset=[{"prompt": "?", "image": "0.png"}] * 3)
    assert not (tmp_path / "run").exists()


def test_a_failed_start_leaves_the_list_of_an_earlier_run_alone(tmp_path):
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "skipped.jsonl").write_text('{"position": 3, "id": "b7"}\n')
    with pytest.raises(ConfigError, match="none of the first 3 rows") as error:
        build(tmp_path, train_dataset=[{"prompt": "?", "image": "0.png"}] * 3)
    assert "All are listed" not in str(error.value)
    assert (tmp_path / "skipped.jsonl").read_text() == '{"position": 3, "id": "b7"}\n'
