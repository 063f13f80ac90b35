"""examples/loop.py is an independent witness: it shares no code with the package, and agrees with it."""

import ast
import importlib.util
from pathlib import Path

import pytest
import torch

from tiny_models import build_model
from tiny_processor import build_processor
from tiny_step import losses_of, make_examples, training_arguments
from vcsd.batch import show
from vcsd.core import forward_kl, log_probs, response_mean, shape_target
from vcsd.method import METHODS, Method
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings
from vcsd.trainer import VCSDTrainer

LOOP = Path(__file__).parents[2] / "examples" / "loop.py"


@pytest.fixture(scope="module")
def loop():
    spec = importlib.util.spec_from_file_location("loop", LOOP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_imports_nothing_of_the_package():
    modules = set()
    for node in ast.walk(ast.parse(LOOP.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module.split(".")[0])
    assert modules <= {"argparse", "copy", "hashlib", "torch", "PIL", "transformers"}


def test_the_loop_shapes_the_same_target(loop):
    torch.manual_seed(0)
    original, control = log_probs(3 * torch.randn(2, 50, loop.VOCAB), loop.T_KD)
    ours = shape_target(original, control, alpha=loop.ALPHA, beta=loop.BETA, end_token_ids=[loop.END])
    assert (ours == -torch.inf).any()
    torch.testing.assert_close(loop.shape_target(original.clone(), control, {loop.END}), ours)


def test_the_loops_first_loss_is_the_packages(loop, capsys):
    """Student and teacher are equal at first, so one model gives all three distributions."""
    model, prompts = loop.tiny_qwen3_vl(0), loop.colour_prompts(0)[:2]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with torch.no_grad():
        divergences, lengths = [], []
        for prompt in prompts:
            responses = loop.sample(model, prompt, key="0/0")
            for view_logits in zip(
                *(loop.next_token_logits(model, prompt, view, responses) for view in ("image", "black")), strict=True
            ):
                original, control = (log_probs(logits[:-1], loop.T_KD) for logits in view_logits)
                log_q = shape_target(original, control, end_token_ids=[loop.END])
                divergences.append(forward_kl(log_q, original))
                lengths.append(len(original))
        ours = response_mean(
            torch.cat(divergences), torch.tensor(lengths), num_responses=len(lengths), loss_scale=loop.T_KD**2
        )
    theirs = loop.distill_step(model, model, prompts, optimizer, key="0/0")
    assert theirs == pytest.approx(ours.item(), rel=1e-5)


def test_responses_never_contain_image_tokens_and_stop_at_the_end_token(loop):
    model, prompts = loop.tiny_qwen3_vl(0), loop.colour_prompts(0)
    with torch.no_grad():
        responses = [response for prompt in prompts for response in loop.sample(model, prompt, key="a")]
    for response in responses:
        assert not torch.isin(response, torch.tensor([loop.IMAGE, loop.VIDEO])).any()
        assert loop.END not in response[:-1]
        assert len(response) == loop.MAX_NEW_TOKENS or response[-1] == loop.END
    assert {len(response) for response in responses} != {loop.MAX_NEW_TOKENS}


def test_the_loss_falls(loop, capsys):
    losses = loop.train(num_steps=10)
    assert losses[-1] < 0.8 * losses[0]


def test_its_loss_curve_is_the_trainers(loop, capsys, tmp_path):
    """Sampling, two views, target, loss, clipping, AdamW, warm-up and the teacher's average: all of it, twice."""
    processor, examples, num_steps = build_processor(), make_examples(3), 8
    shown = [show(example, METHODS["vcsd"], processor) for example in examples]
    prompts = [
        {
            "id": each.example.id,
            "input_ids": each.student.input_ids,
            "grid": each.student.grid_thw,
            "image": each.student.pixel_values,
            "black": each.contrast.pixel_values,
        }
        for each in shown
    ]
    theirs = loop.train(num_steps, seed=0, student=build_model(), prompts=prompts)
    trainer = VCSDTrainer(
        build_model(),
        training_arguments(
            tmp_path, max_steps=num_steps, learning_rate=loop.LEARNING_RATE, warmup_steps=loop.WARMUP_STEPS
        ),
        method=Method(
            alpha=loop.ALPHA, beta=loop.BETA, temperature=loop.T_KD, ema_rate=loop.EMA_RATE, contrast_view="black"
        ),
        train_dataset=examples,
        processing_class=processor,
        rollout=RolloutSettings(Sampling(max_new_tokens=loop.MAX_NEW_TOKENS), loop.NUM_ROLLOUTS, seed=0),
        prompts_per_step=len(examples),
        token_budget=150,
    )
    trainer.train()
    ours = losses_of(trainer)
    assert len(ours) == num_steps
    assert ours == pytest.approx(theirs, rel=2e-5)
    assert len({round(loss, 3) for loss in ours}) > num_steps // 2  # a curve, not a line
