"""Pre-training: a resumed run gives the same model, in a folder that loads like any other."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from vcsd.bases import pretrain as module
from vcsd.bases.curriculum import Curriculum
from vcsd.bases.forward import Forward
from vcsd.bases.measure import Speaker, last_answer
from vcsd.bases.pretrain import Pretraining, pretrain
from vcsd.bases.tiny_models import FAMILIES, SIZES, build_model
from vcsd.errors import ConfigError, RunError
from vcsd.models.processor import load_processor
from vcsd.world.parameters import PARAMETERS

SHORT = PARAMETERS.changed(["batch=12", "sight_steps=2", "answer_steps=3", "sway_steps=2", "warmup_steps=2"])


@pytest.fixture(autouse=True)
def _few_questions(monkeypatch):
    monkeypatch.setattr(module, "NUM_MEASURED", 2)
    monkeypatch.setitem(Speaker.answers.__kwdefaults__, "longest", 6)  # such a model never ends its answer


def told(lines):
    return lambda done, total, line: lines.append((done, total, line))


def go(out, *, stop_after=None, seed=5, family="qwen3_vl"):
    lines = []
    plan = Curriculum(family, "tiny", seed, SHORT)
    is_done = pretrain(plan, out, device="cpu", tell=told(lines), command="a command", stop_after=stop_after)
    return is_done, lines


def test_an_interrupted_run_ends_bit_for_bit_where_it_would_have_ended(tmp_path):
    assert go(tmp_path / "whole")[0]
    assert go(tmp_path / "parts", stop_after=1)[0] is False
    assert (tmp_path / "parts" / "checkpoints" / "checkpoint-1").is_dir()
    assert go(tmp_path / "parts", stop_after=4)[0] is False
    is_done, lines = go(tmp_path / "parts")
    assert is_done
    assert not any("sight:" in line for _, _, line in lines), "what was measured before the break is not done again"
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert all(tensor.dtype == torch.bfloat16 for tensor in whole.values())
    assert not (tmp_path / "parts" / "checkpoints").exists()
    cards = [json.loads((tmp_path / name / "card.json").read_text()) for name in ("whole", "parts")]
    assert cards[0]["measured"] == cards[1]["measured"]
    assert cards[0]["parameters"] == SHORT.digest()
    assert set(cards[0]["measured"]) == {"sight", "answer", "sway"}
    assert "a command" in (tmp_path / "whole" / "README.md").read_text()


def spoil(monkeypatch, steps):
    """Make the gradients of some steps infinite, as a faulty kernel does: their losses stay finite."""
    original, calls = Forward.loss, []

    def loss(self, rows):
        value, each = original(self, rows)
        calls.append(value)
        if len(calls) in steps:
            value.register_hook(lambda gradient: gradient * float("inf"))
        return value, each

    monkeypatch.setattr(Forward, "loss", loss)


def test_a_gradient_that_is_not_finite_costs_a_step_and_is_noted(tmp_path, monkeypatch):
    spoil(monkeypatch, {1})
    assert go(tmp_path, stop_after=2)[0] is False
    assert json.loads((tmp_path / "checkpoints" / "checkpoint-2" / "state.json").read_text())["num_lost"] == 1
    assert go(tmp_path)[0]
    assert all(tensor.isfinite().all() for tensor in load_file(tmp_path / "model.safetensors").values())
    assert "Steps whose gradient was not finite, and counted as zero: 1." in (tmp_path / "README.md").read_text()


def test_a_run_whose_gradients_are_never_finite_ends(tmp_path, monkeypatch):
    spoil(monkeypatch, range(1000))
    monkeypatch.setattr(module, "SAY_EVERY", 1)
    monkeypatch.setattr(module, "MOST_LOST", 1)
    with pytest.raises(RunError, match="the gradient was not finite in 2 of 2 steps"):
        go(tmp_path)


def test_a_finished_folder_is_left_alone_and_another_base_is_refused(tmp_path):
    (tmp_path / "card.json").write_text(json.dumps(Curriculum("qwen3_vl", "tiny", 5, SHORT).identity()))
    is_done, lines = go(tmp_path)
    assert is_done
    assert "is already done" in lines[0][2]
    with pytest.raises(ConfigError, match="holds another base: seed is 5, not 6"):
        go(tmp_path, seed=6)


@pytest.mark.parametrize(
    ("card", "seed", "message"),
    [("{", 5, "card.json is not JSON"), (None, -1, "--seed -1 is not a seed"), (None, 5, "is a file")],
)
def test_what_cannot_be_gone_on_with_is_refused_by_both_commands(tmp_path, monkeypatch, capsys, card, seed, message):
    out = tmp_path / "out"
    if card is not None:
        out.mkdir()
        (out / "card.json").write_text(card)
    elif seed >= 0:
        out.write_text("a file")
    with pytest.raises(ConfigError, match=message):
        go(out, seed=seed)
    monkeypatch.setattr("sys.argv", ["pretrain", "--size", "tiny", f"--seed={seed}", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    go(tmp_path, stop_after=1)
    with pytest.raises(ConfigError, match="belongs to another run"):
        go(tmp_path, seed=6)


def test_the_rate_warms_up_comes_down_and_is_lower_while_swaying():
    plan = Curriculum("qwen3_vl", "tiny", 1)
    world = plan.parameters
    rates = [plan.learning_rate("sight", step) for step in (0, world.warmup_steps - 1, world.sight_steps - 1)]
    assert rates == pytest.approx([world.learning_rate / world.warmup_steps, world.learning_rate, world.learning_rate])
    assert plan.learning_rate("answer", 0) == pytest.approx(world.learning_rate, rel=0.01)
    assert plan.learning_rate("answer", world.answer_steps // 2) == pytest.approx(world.answer_learning_rate)
    assert plan.learning_rate("answer", world.answer_steps - 1) < 0.21 * world.answer_learning_rate
    assert plan.learning_rate("sway", 0) == pytest.approx(world.sway_learning_rate)
    assert plan.learning_rate("sway", world.sway_steps - 1) < 0.11 * world.sway_learning_rate


def test_a_step_changes_the_weights_and_the_loss_falls(tmp_path):
    world = PARAMETERS.changed(["batch=16", "sight_steps=12", "answer_steps=0", "sway_steps=0", "warmup_steps=1"])
    run = Pretraining(Curriculum("qwen3_vl", "tiny", 1, world), tmp_path, torch.device("cpu"), told([]))
    losses = [float(loss) for loss in run._steps("sight")]
    assert len(losses) == 12
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_models_are_seeded_and_small_enough_to_ship(family):
    first, again, other = (build_model(family, "tiny", seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
    assert sum(p.numel() for p in build_model(family, "small").parameters()) <= 4_000_000


def test_unknown_sizes_and_families_are_named():
    with pytest.raises(ConfigError, match=r"'smal' is not a size .* Did you mean 'small'"):
        build_model("qwen3_vl", "smal")
    with pytest.raises(ConfigError, match="'qwen3' is not a family"):
        build_model("qwen3", "small")
    assert set(SIZES) == {"tiny", "small", "medium"}


def test_the_last_answer_counts():
    assert last_answer("The answer is A. No, the answer is B.") == "B"
    assert last_answer("红色") is None


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_answers_are_those_of_generate(family, tmp_path):
    from vcsd.bases.tokenizer import write_processor_files
    from vcsd.world.questions.examples import training_examples

    model = build_model(family, "tiny", seed=3)
    processor = load_processor(write_processor_files(tmp_path, family))
    examples = training_examples(3, seed=8)
    said = Speaker(model, processor).answers(examples, longest=6)
    from vcsd.models.encode import encode
    from vcsd.views import VIEWS

    for example, text in zip(examples, said, strict=True):
        prompt = encode(processor, VIEWS["original"](example))
        out = build_model(family, "tiny", seed=3).generate(
            input_ids=prompt.input_ids[None],
            pixel_values=prompt.pixel_values,
            image_grid_thw=prompt.grid_thw,
            mm_token_type_ids=(prompt.input_ids == processor.image_token_id).int()[None],
            max_new_tokens=6,
            do_sample=False,
        )
        assert text == processor.tokenizer.decode(out[0, len(prompt) :], skip_special_tokens=True)


def test_ctrl_c_does_not_end_the_processes_that_draw_rows():
    """It reaches them, too; each would print a traceback."""
    with module._drawing_processes() as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN
