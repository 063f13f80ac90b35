"""On a large GPU: a model of Qwen3-VL-2B's shapes trains with the token budget that was measured, within memory."""

import sys

import pytest
import torch

from shapes import random_model
from tiny_examples import picture
from tiny_processor import build_processor
from tiny_step import losses_of, training_arguments
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings
from vcsd.trainer import VCSDTrainer
from vcsd.types import Example

NEEDED_GIB = 100
TOKENS = {
    **{"image": "<|image_pad|>", "video": "<|video_pad|>"},
    **{"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"},
}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < NEEDED_GIB * 2**30,
        reason=f"needs a CUDA device with {NEEDED_GIB} GiB",
    ),
]


def examples(count: int) -> list[Example]:
    """Pictures of 256 to 1,024 visual tokens, the largest not in the first step."""
    prompt = ({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "how many?"}]},)
    sides = [512, 640, 768, 1024]
    return [Example(f"large-{i}", (picture(sides[i % 4], sides[i % 4]),), prompt, answer="7") for i in range(count)]


def test_a_model_of_two_billion_trains_within_memory(tmp_path, capsys):
    model, processor = random_model("qwen3_vl", "2b", torch.float32, "cuda"), build_processor(max_pixels=1024 * 1024)
    for name, token in TOKENS.items():
        setattr(model.config, f"{name}_token_id", processor.tokenizer.convert_tokens_to_ids(token))
    trainer = VCSDTrainer(
        model,
        training_arguments(tmp_path, use_cpu=False, bf16=True, max_steps=3, learning_rate=2e-6),
        train_dataset=examples(16),
        processing_class=processor,
        rollout=RolloutSettings(Sampling(max_new_tokens=300), 8, seed=0),
        prompts_per_step=8,
    )
    trainer.train()
    assert len(losses_of(trainer)) == 3
    assert trainer.teacher.num_updates == 3
    total = torch.cuda.get_device_properties(0).total_memory
    peaks = [entry[name] for entry in trainer.state.log_history for name in entry if name.startswith("peak_bytes/")]
    assert 0.3 * total < max(peaks) < total
    assert trainer.progress.token_budget is not None
    last = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    seconds = {name: round(value, 2) for name, value in last.items() if name.startswith("seconds/")}
    with capsys.disabled():
        sys.stdout.write(f"\nrows of {trainer.progress.token_budget} tokens, {max(peaks) / 2**30:.1f} GiB, {seconds}\n")
