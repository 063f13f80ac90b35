"""The contrast of a response's tokens equals core on the model's own logits, and small memory is enough for it."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from PIL import Image

from tiny_models import exact_arithmetic
from vcsd.core import contrast, forward_kl, log_probs, plausible_support, shape_target
from vcsd.errors import ConfigError, DataError
from vcsd.inspect import open_model, tile_map, token_contrast
from vcsd.inspect.image_tiles import erased
from vcsd.inspect.opened import world_question
from vcsd.inspect.token_scores import same_response
from vcsd.method import METHODS, Method
from vcsd.models.encode import encode
from vcsd.types import Example, user_message
from vcsd.views import VIEWS


@pytest.fixture(scope="module")
def world():
    return open_model("world")


@pytest.fixture(scope="module")
def seen(world):
    return token_contrast(world, *world_question())


def logits_of(world, view, response):
    """Logits at every response position from transformers' own forward, without this package's packing."""
    image, question = world_question()
    example = VIEWS[view](Example(id="a", images=[image], prompt=[user_message(question, num_images=1)]))
    prompt = encode(world.processor, example)
    ids = torch.cat([prompt.input_ids, torch.tensor(response)])[None]
    kinds = (ids == world.model.config.image_token_id).int()
    inputs = {"pixel_values": prompt.pixel_values, "image_grid_thw": prompt.grid_thw, "mm_token_type_ids": kinds}
    with torch.no_grad():
        logits = world.model(input_ids=ids, **inputs).logits[0]
    return logits[len(prompt) - 1 : -1]


def test_every_number_equals_core_on_the_models_logits(world, seen):
    with exact_arithmetic(world.model):
        original, control = (log_probs(logits_of(world, view, seen.response), 2.0) for view in ("original", "black"))
    ends = [token.realised.token_id for token in seen.tokens if token.is_end]
    assert ends == [seen.response[-1]]
    delta = contrast(original, control, ends)
    log_q = shape_target(original, control, alpha=1.0, beta=0.1, end_token_ids=ends)
    support = plausible_support(original, 0.1).sum(-1)
    kl = forward_kl(log_q, original)
    entropy = torch.distributions.Categorical(logits=original).entropy()
    for n, token in enumerate(seen.tokens):
        assert token.support_size == support[n]
        assert token.kl_target_original == pytest.approx(kl[n].item(), abs=1e-4)
        assert token.entropy == pytest.approx(entropy[n].item(), abs=1e-4)
        for candidate in (token.realised, *token.candidates):
            v = candidate.token_id
            assert candidate.log_p_original == pytest.approx(original[n, v].item(), abs=1e-4)
            assert candidate.log_p_control == pytest.approx(control[n, v].item(), abs=1e-4)
            assert candidate.contrast == pytest.approx(delta[n, v].item(), abs=1e-4)
            assert candidate.log_p_student == candidate.log_p_original
            wanted = log_q[n, v].item()
            assert (
                candidate.log_q is None if wanted == -math.inf else candidate.log_q == pytest.approx(wanted, abs=1e-4)
            )


def test_the_leading_candidates_of_both_views_and_of_the_target_are_kept(world, seen):
    with exact_arithmetic(world.model):
        original, control = (log_probs(logits_of(world, view, seen.response), 2.0) for view in ("original", "black"))
    for n, token in enumerate(seen.tokens):
        kept = {candidate.token_id for candidate in token.candidates}
        assert {*original[n].topk(3).indices.tolist(), *control[n].topk(3).indices.tolist()} <= kept
        assert token.realised in token.candidates
        assert [candidate.log_q is None for candidate in token.candidates] == sorted(
            candidate.log_q is None for candidate in token.candidates
        )


def test_the_shipped_base_says_green_from_its_prior_and_the_target_prefers_red(seen):
    (green,) = [token for token in seen.tokens if token.realised.text == " green"]
    assert green.realised.contrast < 0 < green.candidates[0].contrast
    assert green.candidates[0].text == " red"


def test_a_given_text_is_scored_with_its_end_token(world):
    given = token_contrast(world, *world_question(), response="The square is red.")
    assert [token.realised.text for token in given.tokens] == ["The", " square", " is", " red", ".", "<|im_end|>"]
    assert not given.is_sampled
    assert given.tokens[3].realised.contrast > 0.5
    assert given.tokens[-1].is_end
    assert given.tokens[-1].realised.contrast == 0


def test_another_student_is_compared_with_the_same_target(world, seen):
    other = open_model("world").model
    with torch.no_grad():
        other.get_output_embeddings().weight.mul_(0.5)
    shown = token_contrast(world, *world_question(), response=seen.response, student=other)
    for token, before in zip(shown.tokens, seen.tokens, strict=True):
        assert token.realised.log_q == pytest.approx(before.realised.log_q, abs=1e-5)
    assert any(abs(t.realised.log_p_student - t.realised.log_p_original) > 0.1 for t in shown.tokens)


def test_chunks_do_not_change_a_number(world, seen, monkeypatch):
    monkeypatch.setattr("vcsd.inspect.token_scores.CHUNK_BYTES", 1)
    again = token_contrast(world, *world_question(), response=seen.response)
    for one, other in zip(seen.tokens, again.tokens, strict=True):
        assert one.realised.contrast == pytest.approx(other.realised.contrast, abs=1e-5)


def test_a_response_goes_to_another_model_as_ids_if_they_mean_the_same(world, seen):
    assert same_response(world, seen, world) == seen.response
    lower = type("Lower", (), {"decode": lambda self, ids: "other"})()
    other = replace(world, processor=type("Toy", (), {"tokenizer": lower})())
    assert same_response(world, seen, other).endswith("The answer is C.")


def test_no_contrast_view_and_an_empty_response_are_errors(world):
    with pytest.raises(ConfigError, match="no contrast view"):
        token_contrast(world, *world_question(), method=METHODS["opsd"])
    with pytest.raises(DataError, match="no tokens"):
        token_contrast(world, *world_question(), response="")


def test_a_control_without_image_is_scored_and_shown_as_black(world):
    shown = token_contrast(world, *world_question(), method=Method(contrast_view="no_image"))
    assert shown.control_images[0].getcolors() == [(96 * 96, (0, 0, 0))]


def test_tile_maps_point_at_what_a_word_names(world, seen):
    maps = {one.candidate.text: one for one in tile_map(world, seen, side=6)}
    assert not maps[" red"].is_realised
    assert maps[" triangle"].is_realised
    for name, box in ((" red", ((2, 3), (4, 5))), (" triangle", ((0, 1), (0, 1)))):
        values = {
            (row, column): value for row, line in enumerate(maps[name].support) for column, value in enumerate(line)
        }
        strongest = max(values, key=values.get)
        assert strongest[0] in box[0]
        assert strongest[1] in box[1]
        assert values[strongest] > 0.1


def test_a_tile_map_is_the_difference_of_two_scored_pictures(world, seen):
    (green, red) = tile_map(world, seen, side=2, positions=[3])
    picture, question = world_question()
    without = token_contrast(
        world, erased(picture, Image.new("RGB", picture.size), 2, 3), question, response=seen.response
    )
    for one in (green, red):
        (loss,) = [
            one.candidate.log_p_original - candidate.log_p_original
            for candidate in without.tokens[3].candidates
            if candidate.token_id == one.candidate.token_id
        ]
        assert one.support[1][1] == pytest.approx(loss, abs=1e-4)


def test_an_erased_tile_shows_the_control_there_and_the_image_elsewhere():
    white, black = Image.new("RGB", (5, 5), "white"), Image.new("RGB", (5, 5))
    shown = erased(white, black, 2, 1)
    assert shown.getpixel((1, 0)) == (255, 255, 255)
    assert shown.getpixel((4, 1)) == (0, 0, 0)
    assert shown.getpixel((4, 2)) == (255, 255, 255)


@pytest.mark.parametrize(("side", "positions"), [(0, None), (99, None), (2, [40])])
def test_tiles_and_tokens_out_of_range_are_errors(world, seen, side, positions):
    with pytest.raises(ConfigError, match=r"tiles = |token = 41"):
        tile_map(world, seen, side=side, positions=positions)


LARGE = """
import json, resource, torch
from vcsd.inspect.contrast_page import contrast_page
from vcsd.inspect.token_scores import ResponseContrast, scored_tokens
from vcsd.loss.objective import Objective
from vcsd.method import METHODS
from vcsd.report.page import page_html
from vcsd.types import Head, Scores
from PIL import Image

class Tokenizer:
    def decode(self, ids, **settings): return f" word{ids[0]}"

torch.manual_seed(0)
head = Head(torch.randn(248320, 64))
views = [Scores(torch.randn(1000, 64), head) for _ in range(2)]
tokens = scored_tokens([*views, views[0]], list(range(1000)), Objective(end_token_ids=(7,)), Tokenizer())
picture = Image.new("RGB", (8, 8))
seen = ResponseContrast("m", "q", (picture,), (picture,), METHODS["vcsd"], tokens)
size = len(page_html(contrast_page([seen])).encode())
print(json.dumps([size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


@pytest.mark.slow
def test_a_thousand_tokens_of_a_large_vocabulary_need_little_memory_and_a_small_page():
    output = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True).stdout
    num_bytes, peak = json.loads(output)
    print(f"{num_bytes / 1e6:.2f} MB, {peak / 2**30:.2f} GiB")  # noqa: T201 - for the docs
    assert num_bytes < 3e6
    assert peak < 2 * 2**30
