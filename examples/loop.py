"""Visual Contrastive Self-Distillation in one page: plain torch and transformers, nothing of `vcsd`.

    python examples/loop.py                  # about half a minute on two CPU cores

The student answers questions about images. A moving average of itself, the teacher, reads each answer twice: with the
image, and with a black image of the same size. What the image made more likely is made more likely still, among the
tokens that were plausible anyway, and the student is pulled there. No label is used.

The model is a tiny Qwen3-VL with random weights, so there is nothing to learn but the teacher's opinion: watch the loss
fall. Sizes: n answers to a prompt, L prompt and answer tokens, R answer tokens, V vocabulary.
"""

import argparse
import copy
import hashlib

import torch
from PIL import Image
from torch import Tensor
from transformers import Qwen2VLImageProcessorPil, Qwen3VLConfig, Qwen3VLForConditionalGeneration

ALPHA, BETA, T_KD, EMA_RATE = 1.0, 0.1, 2.0, 0.05  # the paper's; its learning rate is 2e-6 for real models
NUM_ROLLOUTS, MAX_NEW_TOKENS, LEARNING_RATE, WARMUP_STEPS = 8, 12, 1e-3, 5
VOCAB, END, IMAGE, VIDEO, VISION_START, VISION_END = 64, 1, 2, 3, 4, 5  # a vocabulary of 64 with Qwen's special tokens


def sample(model, prompt, *, key: str) -> list[Tensor]:
    """n answers, each from its own random numbers, so that one answer does not depend on how many others there are."""
    answers = [torch.empty(0, dtype=torch.long) for _ in range(NUM_ROLLOUTS)]
    for position in range(MAX_NEW_TOKENS):
        unfinished = [index for index, answer in enumerate(answers) if not set(answer.tolist()) & ends(model)]
        if not unfinished:
            break
        rows = next_token_logits(model, prompt, "image", [answers[index] for index in unfinished])
        for index, logits in zip(unfinished, rows, strict=True):
            # a sampled image token would claim an image that is not there
            logits[-1, [model.config.image_token_id, model.config.video_token_id]] = -torch.inf
            cumulative_V = logits[-1].softmax(-1).double().cumsum(-1)
            aim = uniform(f"{key}/{index}/{prompt['id']}", position) * cumulative_V[-1:]
            answers[index] = torch.cat([answers[index], torch.searchsorted(cumulative_V, aim, right=True)])
    return answers


def uniform(key: str, position: int) -> float:
    """A random number in [0, 1) that depends on its name alone: 52 bits of a hash."""
    digest = hashlib.sha256(f"{key}/{position // 4}".encode()).digest()
    return (int.from_bytes(digest[8 * (position % 4) :][:8], "little") >> 12) / 2**52


def ends(model) -> set[int]:
    """The tokens that end an answer."""
    found = model.generation_config.eos_token_id
    return set(found if isinstance(found, list) else [found])


def next_token_logits(model, prompt, view: str, answers: list[Tensor]) -> list[Tensor]:
    """For each answer, the logits (R + 1, V) before each of its tokens and after the last; padded on the right."""
    rows = [torch.cat([prompt["input_ids"], answer]) for answer in answers]
    ids_nL = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
    mask_nL = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    logits_nLV = model(
        input_ids=ids_nL,
        attention_mask=mask_nL,
        mm_token_type_ids=(ids_nL == model.config.image_token_id).int(),
        pixel_values=prompt[view].repeat(len(answers), 1),
        image_grid_thw=prompt["grid"].repeat(len(answers), 1),
    ).logits
    start = len(prompt["input_ids"]) - 1
    return [logits_LV[start : start + len(answer) + 1] for logits_LV, answer in zip(logits_nLV, answers, strict=True)]


def log_probs(model, prompt, view: str, answers: list[Tensor]) -> list[Tensor]:
    """For each answer, log-probabilities (R, V) at the distillation temperature."""
    return [(logits[:-1] / T_KD).log_softmax(-1) for logits in next_token_logits(model, prompt, view, answers)]


def shape_target(log_p: Tensor, log_p_control: Tensor, end_ids: set[int]) -> Tensor:
    """log q*: the contrast on the plausible support (Eqs. 6-8). It may not decide when to end."""
    contrast = log_p - log_p_control
    contrast[:, sorted(end_ids)] = 0
    plausible = log_p >= log_p.amax(-1, keepdim=True) + torch.tensor(BETA).log() - 1e-6  # ties are inside
    return (log_p + ALPHA * contrast).masked_fill(~plausible, -torch.inf).log_softmax(-1)


def distill_step(student, teacher, prompts, optimizer, *, key: str) -> float:
    """Algorithm: sample, look twice, shape, pull the student (Eq. 10), let the teacher follow."""
    total = 0.0
    for prompt in prompts:
        with torch.no_grad():
            answers = sample(student, prompt, key=key)
            image, black = (log_probs(teacher, prompt, view, answers) for view in ("image", "black"))
        loss = torch.zeros(())
        for log_p, log_p_image, log_p_black in zip(
            log_probs(student, prompt, "image", answers), image, black, strict=True
        ):
            log_q = shape_target(log_p_image, log_p_black, ends(student))
            kl_R = torch.where(log_q > -torch.inf, log_q.exp() * (log_q - log_p), 0.0).sum(-1)
            loss = loss + T_KD**2 * kl_R.mean() / (len(prompts) * NUM_ROLLOUTS)
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.lerp_(fast, EMA_RATE)
    return total


def tiny_qwen3_vl(seed: int) -> Qwen3VLForConditionalGeneration:
    """Random weights, large enough that the answer depends on the image."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 64, "intermediate_size": 128}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True, "mrope_section": [4, 2, 2]}
    text = {**sizes, "vocab_size": VOCAB, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    vision = {**sizes, "depth": 2, "num_heads": 2, "out_hidden_size": 64, "deepstack_visual_indexes": [0]}
    ids = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": VISION_START}
    config = Qwen3VLConfig(
        text_config={**text, "head_dim": 16, "rope_parameters": rope},
        vision_config={**vision, "patch_size": 16, "num_position_embeddings": 16},
        vision_end_token_id=VISION_END,
        **ids,
    )
    model = Qwen3VLForConditionalGeneration(config).float().eval()
    model.generation_config.eos_token_id = END
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def colour_prompts(seed: int) -> list[dict]:
    """One question about each of four coloured images, and the same image erased."""
    processor = Qwen2VLImageProcessorPil(patch_size=16, size={"shortest_edge": 32 * 32, "longest_edge": 256 * 256})
    question = torch.randint(6, VOCAB, (6,), generator=torch.Generator().manual_seed(seed))
    prompts = []
    for colour in ("red", "green", "blue", "yellow"):
        views = [processor(Image.new("RGB", (96, 64), shade), return_tensors="pt") for shade in (colour, "black")]
        grid = views[0]["image_grid_thw"]
        picture = [VISION_START, *[IMAGE] * int(grid.prod() // 4), VISION_END]  # 2 x 2 patches make one token
        ids = torch.cat([torch.tensor(picture), question])
        pixels = [view["pixel_values"] for view in views]
        prompts.append({"id": colour, "input_ids": ids, "grid": grid, "image": pixels[0], "black": pixels[1]})
    return prompts


def train(num_steps: int, seed: int = 0, student=None, prompts=None) -> list[float]:
    """The loss of each step. Any Qwen3-VL will do as student, with prompts like those of `colour_prompts`."""
    student, prompts = student or tiny_qwen3_vl(seed), prompts or colour_prompts(seed)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / WARMUP_STEPS))
    losses: list[float] = []
    for step in range(num_steps):
        losses.append(distill_step(student, teacher, prompts, optimizer, key=f"{seed}/{step}"))
        warmup.step()
        print(f"step {step + 1:3d}   loss {losses[-1]:.4f}   {'#' * round(40 * losses[-1] / losses[0])}", flush=True)
    return losses


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--steps", type=int, default=20)
    cli.add_argument("--seed", type=int, default=0)
    options = cli.parse_args()
    train(options.steps, options.seed)
