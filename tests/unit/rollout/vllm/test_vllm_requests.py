"""Requests to vLLM and its replies. No vLLM is needed: it is handed plain values and returns them."""

from types import SimpleNamespace

import pytest
import torch

from vcsd.errors import ConfigError, RunError
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm.vllm_requests import (
    BAN,
    image_spans,
    patches_of_images,
    refuse_other_prompt,
    refuse_unknown_tokens,
    sampling_values,
    to_rollout,
    token_log_probs,
)
from vcsd.types import Rollout

IMAGE, END, VIDEO = 9, 2, 8


def prompt(*ids, grid=None):
    return SimpleNamespace(example_id="a", input_ids=torch.tensor(ids), grid_thw=grid)


def reply(*ids, reason="stop", logprobs=None):
    return SimpleNamespace(token_ids=ids, finish_reason=reason, logprobs=logprobs)


def rollout(answer, most=4):
    return to_rollout(answer, "a", 0, [END], [IMAGE, VIDEO], most)


def test_each_image_has_its_own_span():
    grid = torch.tensor([[1, 2, 4], [1, 2, 2]])
    asked = prompt(1, IMAGE, IMAGE, 5, IMAGE, 6, grid=grid)
    assert [(span.offset, span.length) for span in image_spans(asked, IMAGE, merge_size=2)] == [(1, 2), (4, 1)]


def test_a_prompt_without_images_has_no_spans():
    assert image_spans(prompt(1, 2), IMAGE, merge_size=2) == []


def test_image_tokens_that_do_not_fit_the_images_are_an_error():
    with pytest.raises(RunError, match="has 1 image tokens, its images need 2"):
        image_spans(prompt(IMAGE, grid=torch.tensor([[1, 2, 4]])), IMAGE, merge_size=2)


def test_nothing_that_shapes_the_distribution_is_left_to_a_default():
    sampling = Sampling(max_new_tokens=7, temperature=0.5, top_p=0.9, top_k=3, min_p=0.1, presence_penalty=0.2)
    values = sampling_values(sampling, "key", [END, 1], [IMAGE, VIDEO])
    assert (values["max_tokens"], values["temperature"], values["top_p"], values["top_k"]) == (7, 0.5, 0.9, 3)
    assert (values["min_p"], values["presence_penalty"], values["n"], values["watermarking"]) == (0.1, 0.2, 1, False)
    assert values["stop_token_ids"] == [1, END]
    assert values["logit_bias"] == {VIDEO: BAN, IMAGE: BAN}


def test_without_top_k_every_token_is_kept():
    assert sampling_values(Sampling(), "key", [END], [])["top_k"] == 0


def test_the_seed_of_a_request_is_its_key():
    seeds = [sampling_values(Sampling(), key, [END], [])["seed"] for key in ("a", "b", "a")]
    assert seeds[0] == seeds[2] != seeds[1]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_reply_that_ends_is_a_rollout_with_its_end_token():
    drawn = rollout(reply(5, END))
    assert (drawn.token_ids, drawn.stop, drawn.index) == ((5, END), "end", 0)


def test_a_reply_of_full_length_stops_for_length():
    assert rollout(reply(5, 6, 7, 4, reason="length")).stop == "length"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (reply(), "has 0 tokens"),
        (reply(5, 5, 5, 5, 5, reason="length"), "has 5 tokens; 1 to 4"),
        (reply(IMAGE, END), "contains the placeholder 9"),
        (reply(5, 6), "do not agree"),
        (reply(5, END, reason="length"), "do not agree"),
        (reply(5, reason="abort"), "the reason 'abort'"),
        (reply(5, 6, reason="length"), "cut off after 2 of 4 tokens"),
    ],
)
def test_a_reply_that_the_student_could_not_have_given_is_refused(answer, problem):
    with pytest.raises(RunError, match=problem):
        rollout(answer)


def test_in_evaluation_a_response_without_room_says_so_and_all_else_is_still_refused():
    cut = to_rollout(reply(5, 6, reason="length"), "a", 0, [END], [IMAGE], 4, keeps_cut=True)
    assert (cut.token_ids, cut.stop) == ((5, 6), "cut")
    with pytest.raises(RunError, match="the reason 'abort'"):
        to_rollout(reply(5, 6, reason="abort"), "a", 0, [END], [IMAGE], 4, keeps_cut=True)


def test_log_probabilities_are_those_of_the_drawn_tokens():
    choices = [{5: SimpleNamespace(logprob=-1.5), 6: SimpleNamespace(logprob=-9.0)}, {END: SimpleNamespace(logprob=-2)}]
    assert token_log_probs(reply(5, END, logprobs=choices)) == [-1.5, -2.0]
    with pytest.raises(RunError, match="no log-probabilities"):
        token_log_probs(reply(5, END))


def test_another_prompt_than_the_trainers_is_refused():
    refuse_other_prompt(prompt(1, 2), [1, 2])
    with pytest.raises(RunError, match="prompt has 2 tokens, vLLM read 3"):
        refuse_other_prompt(prompt(1, 2), [1, 2, 2])


def test_patches_are_cut_by_image():
    grid = torch.tensor([[1, 1, 2], [1, 1, 1]])
    assert [len(part) for part in patches_of_images(torch.zeros(3, 4), grid)] == [2, 1]
    with pytest.raises(ConfigError, match="4 patches for images of 3"):
        patches_of_images(torch.zeros(4, 4), grid)


@pytest.mark.parametrize("token", [-1, 10, 10**400])
def test_a_token_that_the_student_lacks_is_refused(token):
    refuse_unknown_tokens(Rollout("a", 0, (0, 9), "length"), 10)
    with pytest.raises(RunError, match=r"the student's tokens are 0 to 9\. The server runs another model"):
        refuse_unknown_tokens(Rollout("a", 0, (0, token), "length"), 10)


@pytest.mark.parametrize("log", [float("nan"), float("-inf")])
def test_a_log_probability_that_is_not_finite_is_refused(log):
    with pytest.raises(RunError, match="not finite"):
        token_log_probs(reply(2, logprobs=[{2: SimpleNamespace(logprob=log)}]))
