"""Three training steps with rollouts from the real vLLM, whole weights and LoRA."""

import os

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

os.environ.update(HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", TORCH_COMPILE_DISABLE="1", VLLM_LOGGING_LEVEL="ERROR")

import torch
from peft import LoraConfig
from transformers import TrainingArguments

from tiny_examples import example, picture
from tiny_models import build_model
from tiny_processor import build_processor, write_processor_files
from vcsd import VCSDTrainer
from vcsd.monitor.lines import read_lines
from vcsd.monitor.timeline import SYNC_FILE
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm.start_target import VLLMSettings
from vcsd.step import RolloutSettings
from vcsd.types import Example


def rows():
    texts = ["How many?", "what colour is the square ?", "one two", "red green"]
    examples = [example(picture(64 + 32 * place, 64), text=text) for place, text in enumerate(texts)]
    return [Example(f"row-{place}", shown.images, shown.prompt) for place, shown in enumerate(examples)]


@pytest.mark.parametrize(
    "adapters", [None, LoraConfig(r=4, target_modules=["q_proj", "v_proj"])], ids=["whole", "lora"]
)
def test_every_step_samples_from_the_student_of_that_step(tmp_path, adapters):
    folder = write_processor_files(tmp_path / "model")
    model = build_model()
    model.save_pretrained(folder)
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=3, learning_rate=1e-2, use_cpu=True, save_strategy="no", report_to="none"
    )
    trainer = VCSDTrainer(
        model,
        arguments,
        train_dataset=rows(),
        processing_class=build_processor(),
        rollout=RolloutSettings(Sampling(max_new_tokens=8), 3, seed=0),
        prompts_per_step=2,
        peft_config=adapters,
        vllm=VLLMSettings(folder, max_tokens=512),
    )
    before = torch.cat([weight.detach().flatten().clone() for weight in model.parameters()])
    trainer.train()
    syncs = list(read_lines(tmp_path / "run" / SYNC_FILE))
    assert [line["version"] for line in syncs] == ["step-1", "step-2", "step-3"]
    assert len({line["manifest"] for line in syncs}) == 3  # the student moved, and every sync sent the new weights
    assert all(line["probe_mean"] < 1e-4 for line in syncs)
    assert trainer.num_steps_taken == 3
    if adapters is None:
        assert not torch.equal(before, torch.cat([weight.detach().flatten() for weight in model.parameters()]))
