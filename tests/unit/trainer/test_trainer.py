import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import integrations

from faulty_disk import faulty_disk
from tiny_lora import EVERYWHERE, lora_model
from tiny_models import build_model
from tiny_processor import build_processor
from tiny_step import losses_of, make_examples, make_trainer, training_arguments
from vcsd.batch import gather
from vcsd.errors import ConfigError, DataError, RunError
from vcsd.method import METHODS
from vcsd.models.freeze import PARTS, freeze, part_of
from vcsd.step import RolloutSettings
from vcsd.teacher import Teacher, named_tensors
from vcsd.trainer import drawing
from vcsd.trainer import trainer as trainer_module
from vcsd.trainer.arguments import own_arguments
from vcsd.trainer.budget import row_tokens
from vcsd.types import Rollout


def weights_of(model):
    return {name: tensor.clone() for name, tensor in named_tensors(model).items()}


def moved_share(before, after):
    moved = sum(int((before[name] != after[name]).sum()) for name in before)
    return moved / sum(tensor.numel() for tensor in before.values())


def test_curves_agree_whatever_the_token_budget(tmp_path):
    """Losses and the weights they lead to, over four steps."""
    runs = []
    for budget in (10_000, 60, 40):
        trainer = make_trainer(tmp_path, token_budget=budget)
        trainer.train()
        runs.append((losses_of(trainer), weights_of(trainer.model)))
    (losses, weights), *others = runs
    assert len(losses) == 4
    for other_losses, other_weights in others:
        assert other_losses == pytest.approx(losses, rel=1e-4)
        for name, tensor in weights.items():
            torch.testing.assert_close(other_weights[name], tensor, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps = 2 cannot be set. Set prompts_per_step;"),
        ({"per_device_train_batch_size": 4}, "per_device_train_batch_size = 4 cannot be set. Set prompts_per_step,"),
        ({"auto_find_batch_size": True}, "The token budget is halved when out of memory"),
        ({"save_only_model": True}, "use `vcsd export`"),
        ({"torch_compile": True}, "Packed rows have a different shape"),
        ({"label_smoothing_factor": 0.1}, "The target is already a distribution."),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha = 5.0 cannot be set"),
        ({"eval_strategy": "steps"}, "Score the run with `vcsd eval OUTPUT_DIR`"),
        ({"resume_from_checkpoint": "run/checkpoint-2"}, 'trainer.train("auto") continues from the latest checkpoint'),
        ({"optim": "adafactor"}, "args.optim = 'adafactor' cannot be resumed from. Allowed: adamw_torch,"),
        ({"save_strategy": "best"}, "would save nothing. Set metric_for_best_model"),
    ],
    ids=str,
)
def test_arguments_that_would_change_the_step_are_refused(tmp_path, arguments, advice):
    with pytest.raises(ConfigError) as error:
        make_trainer(tmp_path, arguments=arguments)
    assert advice in str(error.value)


def test_a_reporter_that_cannot_start_is_refused_with_its_reason(tmp_path, monkeypatch):
    class Absent:
        def __init__(self):
            raise RuntimeError("it requires a package to be installed.")

    monkeypatch.setattr(integrations, "get_reporting_integration_callbacks", lambda given: [Absent] if given else [])
    with pytest.raises(ConfigError, match=r"report_to = \['wandb'\] cannot be used: it requires a package"):
        own_arguments(training_arguments(tmp_path, report_to="wandb"), prompts_per_step=3)
    own_arguments(training_arguments(tmp_path), prompts_per_step=3)


def test_nothing_is_reported_anywhere_unless_asked(tmp_path):
    trainer = make_trainer(tmp_path, arguments={"report_to": "none"})
    modules = {type(callback).__module__ for callback in trainer.callback_handler.callbacks}
    assert not any("integration" in module for module in modules)


def test_a_metric_that_a_run_does_not_have_cannot_choose_the_best_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, arguments={"metric_for_best_model": "gradient_nrm"})
    with pytest.raises(ConfigError, match=r"'gradient_nrm' is not a metric of this run. Did you mean 'gradient_norm'"):
        trainer.train()
    assert trainer.state.global_step == 1


def test_the_users_arguments_are_left_alone(tmp_path):
    args = training_arguments(tmp_path)
    before = args.to_dict()
    own = own_arguments(args, prompts_per_step=3)
    assert args.to_dict() == before
    assert own.data_seed == args.seed
    assert not own.remove_unused_columns


def test_half_precision_masters_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"Load the model with dtype=torch.float32"):
        make_trainer(tmp_path, model=build_model(dtype=torch.bfloat16))


@pytest.mark.parametrize("bf16", [False, True])
def test_the_papers_learning_rate_moves_float32_weights_and_their_average(tmp_path, bf16):
    """One step at 2e-6; the same update added to bfloat16 weights would be lost."""
    model = build_model()
    before = weights_of(model)
    trainer = make_trainer(
        tmp_path, model=model, arguments={"max_steps": 1, "learning_rate": 2e-6, "warmup_steps": 0, "bf16": bf16}
    )
    trainer.train()
    assert trainer.accelerator.mixed_precision == ("bf16" if bf16 else "no")
    after, average = weights_of(model), weights_of(trainer.teacher.module)
    assert moved_share(before, after) > 0.8
    assert moved_share(before, average) > 0.5
    half_before = {name: tensor.bfloat16() for name, tensor in before.items()}
    half_after = {name: half_before[name] + (after[name] - before[name]).bfloat16() for name in before}
    assert moved_share(half_before, half_after) < 0.05


def test_the_teacher_is_the_average_of_the_students_of_each_step(tmp_path):
    students = []

    class Keep:
        def observe(self, seen):
            students.append(weights_of(trainer.model))
            return {}

    trainer = make_trainer(tmp_path, monitors=[Keep()], method=replace(METHODS["vcsd"], ema_rate=0.25))
    expected = weights_of(trainer.model)
    trainer.train()
    assert trainer.teacher.num_updates == len(students) == 4
    for student in students:
        expected = {name: 0.75 * tensor + 0.25 * student[name] for name, tensor in expected.items()}
    found = named_tensors(trainer.teacher.module)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)
    assert not any(module.training for module in trainer.teacher.module.modules())


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(("kind", "is_close"), [("fixed", False), ("current", True), ("periodic", True)])
def test_other_teachers_train_too(tmp_path, kind, is_close, bf16):
    method = replace(METHODS["vcsd"], teacher=kind, **({"teacher_every": 2} if kind == "periodic" else {}))
    trainer = make_trainer(tmp_path, method=method, arguments={"bf16": bf16})
    before = weights_of(trainer.model)
    trainer.train()
    assert not torch.is_autocast_enabled("cpu")
    assert moved_share(before, weights_of(trainer.model)) > 0.5
    distance = trainer.state.log_history[-2]["teacher_distance"]
    assert (distance == 0) == is_close


def test_the_published_opsd_trains_on_rollouts_with_their_log_probabilities(tmp_path):
    trainer = make_trainer(tmp_path, method=METHODS["opsd_published"])
    before = weights_of(trainer.model)
    trainer.train()
    assert len(trainer.seen.batch.log_probs) == trainer.seen.batch.num_tokens
    assert all(0 < loss < math.log(2) for loss in losses_of(trainer))
    assert moved_share(before, weights_of(trainer.model)) > 0.5


def test_a_step_without_responses_is_skipped_and_counted(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    before = weights_of(trainer.model)

    def silent(engine, shown, rollouts, step, **_):
        return gather(shown, [Rollout(each.example.id, 0, (), "end") for each in shown])

    monkeypatch.setattr(drawing, "sample", silent)
    trainer.train()
    assert trainer.progress.num_empty_steps == 4
    assert trainer.teacher.num_updates == 0
    assert moved_share(before, weights_of(trainer.model)) == 0
    assert losses_of(trainer) == []
    assert trainer.state.log_history[0]["steps_not_taken"] == 1


def breaking(trainer, steps, poison):
    """Make `distill` of some steps return a broken loss or leave broken gradients."""
    original = trainer_module.distill

    def distill(*args):
        loss, statistics = original(*args)
        if trainer.state.global_step in steps:
            if poison == "loss":
                loss = loss * math.nan
            else:
                next(p for p in trainer.model.parameters() if p.grad is not None).grad.view(-1)[0] = math.inf
        return loss, statistics

    return distill


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_not_taken_and_its_batch_is_kept(tmp_path, monkeypatch, poison):
    trainer = make_trainer(tmp_path)
    monkeypatch.setattr(trainer_module, "distill", breaking(trainer, {1, 2}, poison))
    seen = []

    class Keep:
        def observe(self, observation):
            seen.append((observation.is_taken, weights_of(trainer.model)))
            return {}

    trainer.monitors = [Keep()]
    trainer.train()
    assert [taken for taken, _ in seen] == [True, False, False, True]
    assert moved_share(seen[0][1], seen[2][1]) == 0
    assert moved_share(seen[2][1], seen[3][1]) > 0.5
    assert trainer.teacher.num_updates == 2
    assert (trainer.progress.num_nonfinite_steps, trainer.progress.num_nonfinite_in_a_row) == (2, 0)
    assert all(math.isfinite(loss) for loss in losses_of(trainer))
    assert len(losses_of(trainer)) == 2
    kept = json.loads((tmp_path / "inspect" / "step-2.json").read_text())  # counted from 1, as checkpoints are
    assert kept["step"] == 2
    assert len(kept["rollouts"]) == 9
    assert bool(kept["parameters_without_finite_gradient"]) == (poison == "gradient")
    assert all("<|im_start|>" in text for text in kept["prompts"].values())


def test_three_steps_in_a_row_that_are_not_finite_stop_the_run(tmp_path, monkeypatch):
    seen = []

    class Keep:
        def observe(self, observation):
            seen.append((observation.step, observation.is_taken))
            return {}

    trainer = make_trainer(tmp_path, monitors=[Keep()], arguments={"max_steps": 6})
    monkeypatch.setattr(trainer_module, "distill", breaking(trainer, {0, 2, 3, 4}, "loss"))
    with pytest.raises(RunError, match="3 steps in a row gave no finite loss"):
        trainer.train()
    assert seen == [(1, False), (2, True), (3, False), (4, False), (5, False)]


def test_a_student_without_finite_logits_is_stopped_like_any_loss_that_is_not_finite(tmp_path, caplog):
    """Sampling comes first: there it has no token to draw, and must not fail before the loss is looked at."""
    model = build_model()
    with torch.no_grad():
        model.model.language_model.layers[0].mlp.up_proj.weight[0, 0] = math.nan
    trainer = make_trainer(tmp_path, model=model)
    with pytest.raises(RunError, match="3 steps in a row gave no finite loss"):
        trainer.train()
    assert trainer.teacher.num_updates == 0
    kept = json.loads((tmp_path / "inspect" / "step-1.json").read_text())
    assert {tuple(rollout["token_ids"]) for rollout in kept["rollouts"]} <= {(end,) for end in trainer.end_token_ids}
    assert {rollout["stop"] for rollout in kept["rollouts"]} == {"broken"}
    assert "Step 1: the student's logits are not finite in 9 of 9 rollouts, first for example" in caplog.text


def test_out_of_memory_redoes_the_step_with_half_the_budget(tmp_path, monkeypatch, caplog):
    """The gradients of the rows that did fit are dropped: the curve is that of a run which never failed."""
    calm = make_trainer(tmp_path, token_budget=50)
    calm.train()
    trainer = make_trainer(tmp_path, token_budget=100)
    original, rows = trainer_module.distill, []

    def distill(distiller, batch, budget, backward):
        def fail_late(part):
            backward(part)
            rows.append(budget)
            if budget > 60:
                raise torch.OutOfMemoryError("too large")

        return original(distiller, batch, budget, fail_late)

    monkeypatch.setattr(trainer_module, "distill", distill)
    trainer.train()
    assert rows[:2] == [100, 50]
    assert trainer.progress.token_budget == 50
    assert "repeating the step with rows of 50" in caplog.text
    assert losses_of(trainer) == losses_of(calm)


def test_the_budget_is_measured_on_the_device_before_the_first_step(tmp_path, monkeypatch):
    """With a device that needs a megabyte and a kilobyte per token, and a hundred megabytes free beside the moments."""
    trainer = make_trainer(tmp_path, arguments={"max_steps": 1})
    trainer.train()
    before = weights_of(trainer.model)
    peak, original = [0], trainer_module.distill

    def distill(distiller, row, budget, backward):
        peak[0] = 2**20 + 1000 * row_tokens(row)
        assert row.num_responses * 7 == row.num_tokens  # full responses, all in one row
        assert row.sizes()[0].prompt == longest
        result = original(distiller, row, budget, backward)
        assert len(result[1]) == 1
        return result

    monkeypatch.setattr(trainer_module, "distill", distill)
    moments = 8 * sum(parameter.numel() for parameter in trainer.model.parameters())
    fakes = {"synchronize": None, "reset_peak_memory_stats": None, "empty_cache": None, "memory_allocated": 0}
    fakes |= {"memory_reserved": 0, "mem_get_info": (100_000_000 + moments, 10**12)}
    fakes |= {"get_per_process_memory_fraction": 1.0}
    for name, value in fakes.items():
        monkeypatch.setattr(torch.cuda, name, lambda *given, value=value: value)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *given: peak[0])
    trainer.args = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    shown = sorted((trainer._show(example) for example in make_examples(3)), key=lambda each: each.num_prompt_tokens)
    longest = shown[-1].num_prompt_tokens
    assert shown[0].num_prompt_tokens < longest
    budget = trainer._measured_budget(trainer.distiller.student, shown[:1])  # longer ones come in later steps
    assert budget == (90_000_000 - 2**20) // 1000 // 256 * 256
    assert moved_share(before, weights_of(trainer.model)) == 0
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


def test_a_prompt_longer_than_the_budget_gets_a_row_of_its_own(tmp_path, caplog):
    small, whole = make_trainer(tmp_path, token_budget=5), make_trainer(tmp_path)
    for trainer in (small, whole):
        trainer.train()
    assert losses_of(small) == pytest.approx(losses_of(whole), rel=1e-4)
    assert "more than the budget; it gets its own row" in caplog.text


def test_a_single_response_that_does_not_fit_stops_the_run(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, token_budget=100)

    def distill(*given):
        raise torch.OutOfMemoryError("too large")

    monkeypatch.setattr(trainer_module, "distill", distill)
    with pytest.raises(RunError, match=r"one prompt with one response. Lower max_pixels"):
        trainer.train()


def test_a_run_that_stops_and_cannot_save_says_both(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, token_budget=100)
    original, calls = trainer_module.distill, []

    def distill(*given):
        calls.append(given)
        if len(calls) > 1:
            raise torch.OutOfMemoryError("too large")
        return original(*given)

    monkeypatch.setattr(trainer_module, "distill", distill)
    with faulty_disk(tmp_path / ".partial"), pytest.raises(RunError) as stopped:
        trainer.train()
    told = str(stopped.value)
    assert "one prompt with one response. Lower max_pixels" in told
    assert "The last finished step could not be saved either: " in told
    assert "checkpoint-1 could not be written: " in told


def test_the_logged_norm_is_that_before_clipping(tmp_path):
    trainer = make_trainer(tmp_path, arguments={"max_grad_norm": 1e-3})
    trainer.train()
    assert trainer.state.log_history[0]["grad_norm"] > 0.1


def test_gradient_checkpointing_changes_nothing(tmp_path):
    plain = make_trainer(tmp_path)
    checked = make_trainer(tmp_path, arguments={"gradient_checkpointing": True})
    for trainer in (plain, checked):
        trainer.train()
    assert losses_of(checked) == pytest.approx(losses_of(plain), rel=1e-5)


def test_reentrant_checkpoints_are_refused_where_they_would_leave_adapters_untrained(tmp_path):
    reentrant = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}
    make_trainer(tmp_path, arguments=reentrant, model=lora_model(both=True))
    with pytest.raises(ConfigError, match="would leave the adapters of the vision tower untrained"):
        make_trainer(tmp_path, arguments=reentrant, model=lora_model("qwen3_vl", EVERYWHERE))


def blind(example):
    text = [{"type": "text", "text": "how many?"}]
    return replace(example, images=(), boxes=(), prompt=({"role": "user", "content": text},))


@pytest.mark.parametrize("num_seen", [0, 3])
def test_rows_without_images_train_nothing_if_only_the_tower_is_trained(tmp_path, num_seen):
    """In a row of its own, such a prompt reaches no trained weight; with others, it counts in the loss of the step."""
    examples = make_examples(5)
    examples = [*examples[:num_seen], *map(blind, examples[num_seen:])]
    losses, moved = [], []
    for budget in (10_000, 60):
        model = build_model()
        freeze(model, "language")
        before = weights_of(model)
        given = {"model": model, "method": METHODS["opsd"], "train_dataset": examples, "prompts_per_step": 5}
        trainer = make_trainer(tmp_path, token_budget=budget, arguments={"max_steps": 2}, **given)
        trainer.train()
        losses.append(losses_of(trainer))
        moved.append(moved_share(before, weights_of(model)) > 0)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert moved == [num_seen > 0] * 2


@pytest.mark.parametrize("part", PARTS)
def test_frozen_parts_stay_and_the_rest_moves(tmp_path, part):
    model = build_model()
    freeze(model, part)
    before = weights_of(model)
    make_trainer(tmp_path, model=model).train()
    after = weights_of(model)
    for other in PARTS:
        names = [name for name in before if part_of(name) == other]
        assert names
        share = moved_share({n: before[n] for n in names}, {n: after[n] for n in names})
        assert (share == 0) == (other == part), (other, share)


def test_freezing_everything_or_an_unknown_part_is_refused():
    with pytest.raises(ConfigError, match="nothing to train"):
        freeze(build_model(), *PARTS)
    with pytest.raises(ConfigError, match="'tower' is not a part"):
        freeze(build_model(), "tower")


def test_rows_that_cannot_be_used_are_replaced_by_the_next(tmp_path):
    examples = make_examples(6)
    examples[2] = replace(examples[2], images=("missing.png",))
    trainer = make_trainer(tmp_path, train_dataset=examples)
    trainer.train()
    assert trainer.stream.skips.num_skipped >= 1
    assert all(entry["num_responses"] == 9 for entry in trainer.state.log_history if "loss" in entry)


def test_prompts_are_encoded_as_the_settings_say(tmp_path):
    """The longest of five prompts is allowed one token less than it has: it is passed over."""
    lengths = sorted(make_trainer(tmp_path)._show(example).num_prompt_tokens for example in make_examples(5))
    assert lengths[-2] < lengths[-1]
    trainer = make_trainer(tmp_path, prompt_settings={"max_tokens": lengths[-1] - 1})
    trainer.train()
    assert set(trainer.stream.skips.counts) == {"over_long_prompt"}


def test_without_a_limit_prompts_leave_room_for_a_response_in_the_positions_of_the_model(tmp_path):
    examples = make_examples(6)
    prompt = examples[2].prompt[0]
    words = [part if part["type"] == "image" else {"type": "text", "text": "7" * 5000} for part in prompt["content"]]
    examples[2] = replace(examples[2], prompt=({**prompt, "content": words},))
    trainer = make_trainer(tmp_path, train_dataset=examples)
    room = trainer.model.config.get_text_config().max_position_embeddings - trainer.rollout.sampling.max_new_tokens
    with pytest.raises(DataError, match=rf"tokens, {room} are allowed"):
        trainer._show(examples[2])
    trainer.train()
    assert set(trainer.stream.skips.counts) == {"over_long_prompt"}
    assert trainer.prompt_settings == {}  # what a checkpoint compares is what the user set


def test_another_order_of_the_data_is_another_seed(tmp_path):
    seen = []

    class Keep:
        def observe(self, observation):
            seen.append([example.id for example in observation.examples])
            return {}

    for seed in (1, 2, 1):
        make_trainer(tmp_path, monitors=[Keep()], arguments={"max_steps": 1, "data_seed": seed}).train()
    assert seen[0] == seen[2] != seen[1]


def test_another_seed_draws_other_answers(tmp_path):
    sampling = make_trainer(tmp_path).rollout.sampling
    runs = [make_trainer(tmp_path, rollout=RolloutSettings(sampling, 3, seed)) for seed in (0, 1)]
    for trainer in runs:
        trainer.train()
    assert losses_of(runs[0])[0] != losses_of(runs[1])[0]


def test_a_teacher_may_be_given(tmp_path):
    model = build_model()
    teacher = Teacher(model, "fixed")
    trainer = make_trainer(tmp_path, model=model, teacher=teacher)
    trainer.train()
    assert trainer.teacher is teacher
    assert teacher.num_updates == 4


@pytest.mark.parametrize(("is_gone", "origin"), [(True, "came from .*, which is gone"), (False, "was not loaded from")])
def test_a_checkpoint_without_processor_files_warns(tmp_path, is_gone, origin):
    processor = build_processor()
    processor.source_folder = tmp_path / "gone" if is_gone else None
    saving = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    trainer = make_trainer(tmp_path / "run", processing_class=processor, arguments=saving)
    with pytest.warns(UserWarning, match=f"the checkpoint has no processor files: the processor {origin}"):
        trainer.train()
    assert not list((tmp_path / "run").rglob("tokenizer*.json"))


def test_a_batch_that_cannot_be_kept_for_inspection_does_not_stop_the_run(tmp_path, monkeypatch, caplog):
    trainer = make_trainer(tmp_path)
    monkeypatch.setattr(trainer_module, "distill", breaking(trainer, {1}, "loss"))
    (tmp_path / "inspect").write_text("a file where the folder would be")
    trainer.train()
    assert trainer.num_steps_taken == 3
    assert "step-2.json could not be written" in caplog.text
