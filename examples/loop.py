"""Visual Contrastive Self-Distillation on one page: plain torch and transformers, without `vcsd`.

    python examples/loop.py                  # about half a minute on two CPU cores

The student samples responses to questions about images. The teacher, a moving average of the student, scores each
response twice: with the image, and with a black image of the same size. Among the tokens that are plausible given the
image, the target raises those that the image made more likely, and the student is distilled towards it. No labels.

The model is a tiny Qwen3-VL with random weights, so there is nothing to learn except to agree with the teacher: watch
the loss fall. Shape legend: n responses to a prompt, L prompt and response tokens, R response tokens, V vocabulary.
"""

import argparse
import copy
import hashlib

import torch
from PIL import Image
from torch import Tensor
from transformers import Qwen2VLImageProcessorPil, Qwen3VLConfig, Qwen3VLForConditionalGeneration

ALPHA, BETA, T_KD, EMA_RATE = 1.0, 0.1, 2.0, 0.05  # the paper's values; for real models, its learning rate is 2e-6
NUM_ROLLOUTS, MAX_NEW_TOKENS, LEARNING_RATE, WARMUP_STEPS = 8, 12, 1e-3, 5
VOCAB, END, IMAGE, VIDEO, VISION_START, VISION_END = 64, 1, 2, 3, 4, 5  # a vocabulary of 64 with Qwen's special tokens


def sample(model, prompt, *, key: str) -> list[Tensor]:
    """Sample n responses, each with its own random numbers, so that none depends on how many others there are."""
    responses = [torch.empty(0, dtype=torch.long) for _ in range(NUM_ROLLOUTS)]
    for position in range(MAX_NEW_TOKENS):
        unfinished = [index for index, response in enumerate(responses) if not set(response.tolist()) & ends(model)]
        if not unfinished:
            break
        rows = next_token_logits(model, prompt, "image", [responses[index] for index in unfinished])
        for index, logits in zip(unfinished, rows, strict=True):
            # never sample an image token: there is no image for it
            logits[-1, [model.config.image_token_id, model.config.video_token_id]] = -torch.inf
            cumulative_V = logits[-1].softmax(-1).double().cumsum(-1)
            aim = uniform(f"{key}/{index}/{prompt['id']}", position) * cumulative_V[-1:]
            responses[index] = torch.cat([responses[index], torch.searchsorted(cumulative_V, aim, right=True)])
    return responses


def uniform(key: str, position: int) -> float:
    """A random number in [0, 1) that depends only on its key and position: 52 bits of a hash."""
    digest = hashlib.sha256(f"{key}/{position // 4}".encode()).digest()
    return (int.from_bytes(digest[8 * (position % 4) :][:8], "little") >> 12) / 2**52


def ends(model) -> set[int]:
    """The tokens that end a response."""
    end_ids = model.generation_config.eos_token_id
    return set(end_ids if isinstance(end_ids, list) else [end_ids])


def next_token_logits(model, prompt, view: str, responses: list[Tensor]) -> list[Tensor]:
    """For each response, the logits (R + 1, V) before each of its tokens and after the last. Rows are right-padded."""
    rows = [torch.cat([prompt["input_ids"], response]) for response in responses]
    ids_nL = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
    mask_nL = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    logits_nLV = model(
        input_ids=ids_nL,
        attention_mask=mask_nL,
        mm_token_type_ids=(ids_nL == model.config.image_token_id).int(),
        pixel_values=prompt[view].repeat(len(responses), 1),
        image_grid_thw=prompt["grid"].repeat(len(responses), 1),
    ).logits
    start = len(prompt["input_ids"]) - 1
    return [
        logits_LV[start : start + len(response) + 1] for logits_LV, response in zip(logits_nLV, responses, strict=True)
    ]


def log_probs(model, prompt, view: str, responses: list[Tensor]) -> list[Tensor]:
    """For each response, log-probabilities (R, V) at the distillation temperature."""
    return [(logits[:-1] / T_KD).log_softmax(-1) for logits in next_token_logits(model, prompt, view, responses)]


def shape_target(log_p: Tensor, log_p_control: Tensor, end_ids: set[int]) -> Tensor:
    """log q*: the contrast on the plausible support (Eqs. 6-8), with no contrast on end tokens."""
    contrast = log_p - log_p_control
    contrast[:, sorted(end_ids)] = 0
    plausible = log_p >= log_p.amax(-1, keepdim=True) + torch.tensor(BETA).log() - 1e-6  # includes ties
    return (log_p + ALPHA * contrast).masked_fill(~plausible, -torch.inf).log_softmax(-1)


def distill_step(student, teacher, prompts, optimizer, *, key: str) -> float:
    """Algorithm 1: sample, look twice, shape, distill (Eq. 10), update the student and the teacher."""
    total = 0.0
    for prompt in prompts:
        with torch.no_grad():
            responses = sample(student, prompt, key=key)
            image, black = (log_probs(teacher, prompt, view, responses) for view in ("image", "black"))
        loss = torch.zeros(())
        for log_p, log_p_image, log_p_black in zip(
            log_probs(student, prompt, "image", responses), image, black, strict=True
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
    """A tiny model with random weights that are large enough for the image to matter."""
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
    """One question about each of four coloured images, and the same image in black."""
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
    """Train and return the loss of each step. The student may be any Qwen3-VL, with prompts as in `colour_prompts`."""
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
