"""Training adapters: whose weights score, what moves, what rolls out, and what a checkpoint and an export hold."""

import json
from dataclasses import replace
from pathlib import Path

import peft
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForImageTextToText, TrainerCallback

from tiny_groups import gradients, repeated_batch, three_groups
from tiny_lora import EVERYWHERE, FAMILIES, LANGUAGE, lora_model, lora_trainer, prepared, stir, write_base
from tiny_models import build_model
from tiny_processor import build_processor
from tiny_step import long_way, losses_of, make_batch, make_examples, make_trainer
from vcsd.checkpoint.export import export, public_base
from vcsd.errors import ConfigError
from vcsd.method import METHODS
from vcsd.models.family import family_of
from vcsd.models.freeze import is_adapter
from vcsd.models.score import hidden_states
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.half_copy import HalfCopy
from vcsd.rollout.sampling import Sampling
from vcsd.step import Distiller, distill
from vcsd.teacher import Teacher, fingerprint, named_tensors, own_tensors

METHOD = METHODS["vcsd"]
pytestmark = pytest.mark.filterwarnings("ignore:.* is not of a family that shares prefixes")


def pair(family, parts, both=False):
    """A student and a teacher with different adapters, on one base."""
    student = prepared(lora_model(family, parts, both=both))
    stir(student, seed=1)
    teacher = Teacher(student)
    stir(student, seed=2)
    return student, teacher


def distilled(student, teacher, batch, budget=600):
    ends = family_of(student).end_token_ids(student)
    student.zero_grad()
    loss, _ = distill(Distiller(student, teacher, METHOD, ends), batch, budget, lambda part: part.backward())
    return loss, gradients(student)


@pytest.mark.parametrize("parts", [LANGUAGE, EVERYWHERE], ids=["language", "vision too"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_looks_with_its_own_adapters(family, parts):
    """The loss and its gradient from packed rows are those of full logits of the repeated batch."""
    student, teacher = pair(family, parts)
    batch = make_batch(student, build_processor(family), METHOD, make_examples(3))
    ends = family_of(student).end_token_ids(student)
    loss, found = distilled(student, teacher.module, batch)
    student.zero_grad()
    expected = long_way(student.get_base_model(), teacher.module.get_base_model(), batch, METHOD, ends, family)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-6)
    wanted = gradients(student)
    assert found.keys() == wanted.keys()
    assert all(".lora_B." in name for name in found)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=2e-3, atol=2e-5, msg=name)
    swapped, _ = distilled(student, student, batch)
    assert abs(float(swapped - loss)) > 1e-3 * float(loss), "a teacher with the student's adapters has another loss"


@pytest.mark.parametrize("parts", [LANGUAGE, EVERYWHERE], ids=["language", "vision too"])
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_gradient_checkpointing_recomputes_with_the_students_adapters(family, parts):
    student, teacher = pair(family, parts, both=True)
    batch = make_batch(student, build_processor(family), METHOD, make_examples(3))
    student.train()
    loss, expected = distilled(student, teacher.module, batch)
    student.gradient_checkpointing_enable()
    again, found = distilled(student, teacher.module, batch)
    assert torch.equal(again, loss)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-7)


def test_features_are_shared_unless_the_tower_has_adapters():
    counts = []
    for parts in (LANGUAGE, EVERYWHERE):
        student, teacher = pair("qwen3_vl", parts)
        batch = make_batch(student, build_processor(), METHOD, make_examples(3))
        ends = family_of(student).end_token_ids(student)
        run = Distiller(student, teacher.module, METHOD, ends)
        for _ in range(2):
            before = run.features.num_computed
            distill(run, batch, 600, lambda part: part.backward())
            counts.append((run.features.num_computed - before, run.features.for_student is not None))
    assert counts == [(6, True), (3, True), (6, False), (6, False)], "black images last while the tower is frozen"


@pytest.mark.parametrize("family", FAMILIES)
def test_rollouts_are_those_of_the_merged_model(family):
    student = prepared(lora_model(family, EVERYWHERE))
    stir(student, seed=1)
    prompts = [group.prompt for group in three_groups(family)]
    prompts = [replace(p, example_id=f"e{i}", pixel_values=p.pixel_values.float()) for i, p in enumerate(prompts)]

    def drawn(model):
        sampled = TransformersEngine(model).sample(
            prompts, Sampling(max_new_tokens=9), num_rollouts=2, seed=3, with_log_probs=True
        )
        return [rollout.token_ids for rollout in sampled.rollouts], torch.cat(list(sampled.log_probs))

    base_tokens, _ = drawn(build_model(family))
    tokens, log_probs = drawn(student.get_base_model())
    merged_tokens, merged_log_probs = drawn(student.merge_and_unload())
    assert tokens == merged_tokens != base_tokens
    torch.testing.assert_close(log_probs, merged_log_probs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_adapters_move_and_the_teacher_is_their_average(tmp_path, family):
    model = build_model(family)
    before = {name: p.clone() for name, p in model.named_parameters()}
    trainer = make_trainer(
        tmp_path,
        model=model,
        processing_class=build_processor(family),
        peft_config=peft.LoraConfig(r=4, target_modules="all-linear"),
    )
    expected = {name: tensor.clone() for name, tensor in own_tensors(trainer.model).items()}
    updated = trainer.teacher.update

    def checked():
        updated()
        for name, tensor in own_tensors(trainer.model).items():
            expected[name] += 0.05 * (tensor - expected[name])

    trainer.teacher.update = checked
    trainer.train()
    found, student = own_tensors(trainer.teacher.module), own_tensors(trainer.model)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-8)
    assert all(not torch.equal(student[name], found[name]) for name in found), "both factors of every adapter move"
    for name, parameter in trainer.model.get_base_model().named_parameters():
        if not is_adapter(name):
            assert torch.equal(parameter, before[name.replace(".base_layer.", ".")]), name
            assert parameter.grad is None


def test_student_teacher_and_the_copy_that_samples_share_one_base():
    student = prepared(lora_model(dtype=torch.bfloat16))
    teacher, half = Teacher(student), HalfCopy(student)
    for name, parameter in student.named_parameters():
        copies = [dict(model.named_parameters())[name] for model in (teacher.module, half.module)]
        if is_adapter(name):
            assert copies[1] is not parameter, name
            assert copies[1].dtype == torch.bfloat16
            assert (copies[0] is parameter) == (".lora_A." in name), "a frozen factor is shared too"
        else:
            assert all(copy is parameter for copy in copies), name
    stir(student, seed=1)
    half.refresh()
    named = dict(half.module.named_parameters())
    assert all(torch.equal(named[name], p.bfloat16()) for name, p in student.named_parameters())
    assert not any(p.any() for name, p in teacher.module.named_parameters() if ".lora_B." in name)


def test_a_base_in_bfloat16_trains_adapters_in_float32(tmp_path):
    trainer = make_trainer(
        tmp_path, model=lora_model(dtype=torch.bfloat16), arguments={"bf16": True, "learning_rate": 2e-6}
    )
    trainer.train()
    moved = own_tensors(trainer.teacher.module)
    assert all(tensor.any() for name, tensor in moved.items() if ".lora_B." in name)
    assert len(losses_of(trainer)) == 4


SAVES = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "warmup_steps": 2}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_base(folder)
    return folder


@pytest.fixture(scope="module")
def finished(base, tmp_path_factory):
    trainer = lora_trainer(tmp_path_factory.mktemp("run"), base, arguments=SAVES)
    trainer.train()
    return trainer


def digest(trainer):
    models = {"student": trainer.model, "teacher": trainer.teacher.module}
    return losses_of(trainer), {name: fingerprint(named_tensors(model)) for name, model in models.items()}


def test_a_checkpoint_holds_adapters_and_not_the_base(finished):
    checkpoint = finished.args.output_dir + "/checkpoint-4"
    for name in ("student", "teacher"):
        with safe_open(f"{checkpoint}/{name}.safetensors", "pt") as file:
            assert all(is_adapter(key) for key in file.keys())  # noqa: SIM118  not a dictionary
            assert len(file.keys()) == 2 * 3 * 4


@pytest.mark.parametrize("stop", [2, 3])
def test_a_resumed_run_of_adapters_is_the_uninterrupted_one(finished, base, tmp_path, stop):
    trainer = lora_trainer(tmp_path, base, arguments={**SAVES, "save_steps": stop})
    trainer.add_callback(StopAt(stop))
    trainer.train()
    assert trainer.state.global_step == stop
    resumed = lora_trainer(tmp_path, base, arguments={**SAVES, "save_steps": stop})
    resumed.train("auto")
    assert digest(resumed) == digest(finished)


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step


def test_a_run_resumes_with_its_own_settings_and_base_only(finished, base, tmp_path):
    folder = finished.args.output_dir
    other = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "up_proj"])
    with pytest.raises(ConfigError, match=r"lora.lora_alpha was 8 and is now 16"):
        lora_trainer(folder, base, arguments=SAVES, peft_config=other).train("auto")
    with pytest.raises(ConfigError, match="the weights that the run starts from changed"):
        lora_trainer(folder, base, arguments=SAVES, model=build_model(seed=1)).train("auto")


def logits_of(model, groups):
    hidden = torch.cat(repeated_batch(model, groups, "qwen3_vl"))
    return hidden @ model.get_output_embeddings().weight.T


@pytest.mark.parametrize("what", ["student", "teacher"])
def test_merged_weights_load_without_peft_and_have_the_same_logits(finished, base, tmp_path, what):
    export(Path(finished.args.output_dir), tmp_path / "out", what=what, dtype="float32")
    plain = AutoModelForImageTextToText.from_pretrained(tmp_path / "out")
    assert type(plain) is type(build_model())
    assert not any(is_adapter(name) for name in plain.state_dict())
    model = finished.model if what == "student" else finished.teacher.module
    groups = [
        replace(g, prompt=replace(g.prompt, pixel_values=g.prompt.pixel_values.float()))
        for g in three_groups("qwen3_vl")
    ]
    with torch.no_grad():
        found = logits_of(plain, groups)
        expected = torch.cat([hidden_states(model, groups)]) @ plain.get_output_embeddings().weight.T
        at_the_start = logits_of(AutoModelForImageTextToText.from_pretrained(base), groups)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (found - at_the_start).abs().max() > 1e-3


@pytest.mark.parametrize("what", ["student", "teacher"])
def test_an_exported_adapter_loads_in_peft(finished, base, tmp_path, what):
    export(Path(finished.args.output_dir), tmp_path / "out", what=what, adapter=True)
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["inference_mode"]
    plain = AutoModelForImageTextToText.from_pretrained(base)
    loaded = own_tensors(peft.PeftModel.from_pretrained(plain, tmp_path / "out"))
    expected = own_tensors(finished.model if what == "student" else finished.teacher.module)
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())


def test_save_model_writes_the_adapter_for_peft(finished, base, tmp_path):
    finished.save_model(str(tmp_path))
    plain = AutoModelForImageTextToText.from_pretrained(base)
    loaded = own_tensors(peft.PeftModel.from_pretrained(plain, tmp_path))
    assert all(torch.equal(loaded[name], tensor) for name, tensor in own_tensors(finished.model).items())


def test_an_adapter_is_merged_into_its_own_base_only(finished, base, tmp_path):
    write_base(tmp_path / "other")
    build_model(seed=1).save_pretrained(tmp_path / "other")
    run = Path(finished.args.output_dir)
    with pytest.raises(ConfigError, match=r"is not the one the adapters were trained on. Pass the right one as --base"):
        export(run, tmp_path / "out", base=tmp_path / "other")
    with pytest.raises(ConfigError, match=r"--base = .*: there is no such folder"):
        export(run, tmp_path / "out", base=tmp_path / "absent")


def test_a_run_without_adapters_has_none_to_export(tmp_path):
    write_base(tmp_path / "base")
    trainer = lora_trainer(tmp_path / "run", tmp_path / "base", arguments={**SAVES, "max_steps": 2}, peft_config=None)
    trainer.train()
    with pytest.raises(ConfigError, match=r"holds whole weights, not adapters"):
        export(tmp_path / "run", tmp_path / "out", adapter=True)
    with pytest.raises(ConfigError, match=r"holds whole weights, not adapters"):
        public_base(tmp_path / "run", None)  # what a push asks first


def test_training_continues_from_an_adapter_that_was_exported(finished, base, tmp_path):
    export(Path(finished.args.output_dir), tmp_path / "out", adapter=True)
    plain = AutoModelForImageTextToText.from_pretrained(base)
    model = peft.PeftModel.from_pretrained(plain, tmp_path / "out", is_trainable=True)
    start = {name: tensor.clone() for name, tensor in own_tensors(finished.model).items()}
    trainer = lora_trainer(tmp_path / "run", base, model=model, peft_config=None, arguments={"max_steps": 1})
    assert all(torch.equal(tensor, start[name]) for name, tensor in own_tensors(trainer.teacher.module).items())
    trainer.train()
    assert len(losses_of(trainer)) == 1


def test_a_teacher_and_peft_config_are_not_given_together(tmp_path):
    model = build_model()
    config = peft.LoraConfig(r=2, target_modules=["q_proj"])
    with pytest.raises(ConfigError, match="Build it from a PeftModel"):
        make_trainer(tmp_path, model=model, teacher=Teacher(model), peft_config=config)
