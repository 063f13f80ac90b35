"""On a GPU: Idefics3 is scored from its cache as in float64 on the CPU, and packed captions teach the same."""

import pytest
import torch

from tiny_fallbacks import build_fallback, tiled_prompts
from tiny_groups import gradients, nonlinear_loss
from tiny_language import plain_sprites, write_language
from vcsd.emoji.captions import CaptionSteps, Shares
from vcsd.emoji.emoji_scenes import ScenePainter
from vcsd.emoji.seeing_model import PromptTokens, TowerSize, build_seeing_model, hidden_states, write_processor
from vcsd.models import fallback
from vcsd.models.packed.packing import Group
from vcsd.models.score import score

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def flat(model):
    grads = gradients(model)
    return torch.cat([grads[name].double().cpu().flatten() for name in sorted(grads)])


def distance(found, true):
    return float((found - true).norm() / true.norm())


@pytest.mark.parametrize(("is_half", "most"), [(False, 1e-3), (True, 5e-2)])
def test_idefics3_is_scored_from_its_cache_as_the_repeated_batch_in_float64(is_half, most):
    groups = [Group(prompt, [[20, 21, 22], [30], [31, 32]]) for prompt in tiled_prompts("idefics3")]
    true, model = (build_fallback("idefics3", torch.float64).train() for _ in range(2))
    model = model.float().to("cuda")
    expected_ND = fallback.FAMILY.hidden_states(true, groups)
    nonlinear_loss(expected_ND).backward()
    with torch.autocast("cuda", torch.bfloat16, enabled=is_half):
        hidden_ND = score(model, groups).hidden_ND
    nonlinear_loss(hidden_ND.float()).backward()
    assert distance(hidden_ND.detach().double().cpu(), expected_ND.detach()) < most
    assert distance(flat(model), flat(true)) < 2 * most


@pytest.mark.parametrize(("is_half", "most"), [(False, 1e-3), (True, 5e-2)])
def test_packed_captions_have_the_hidden_states_of_the_cpu(tmp_path, is_half, most):
    write_language(tmp_path / "language")
    processor = write_processor(tmp_path / "language", tmp_path)
    rows = CaptionSteps(PromptTokens(processor.tokenizer), Shares(5, 2, 1), [[5, 6, 7, 8]], 0, 1)[0]
    painter = ScenePainter(plain_sprites())
    pixels = painter.paint(rows.sprites_B9, rows.tints_B9, torch.Generator().manual_seed(0))[rows.order_B]
    model = build_seeing_model(tmp_path / "language", processor, TowerSize(32, 1, 2)).eval()
    with torch.no_grad():
        expected_ND = hidden_states(model, rows, pixels).double()
        model = model.to("cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=is_half):
            hidden_ND = hidden_states(model, rows, pixels.to("cuda")).double().cpu()
    assert distance(hidden_ND, expected_ND) < most
