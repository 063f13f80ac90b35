"""A dry run says who samples and what travels, if vLLM does."""

import pytest

from vcsd.config.recipe import load_recipe
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.placement import placement


def lines(name, *overrides, count=1):
    recipe = load_recipe(name, [*overrides])
    model, _ = empty_model(recipe)
    return placement(recipe, job_of(recipe, model), count)


def test_transformers_needs_no_placement():
    assert lines("paper/qwen3_vl_2b") == []


def test_in_the_process_weights_stay_on_the_gpu():
    who, what = lines("vllm/8gpus")
    assert who.startswith("1 rank; each trains and samples on its own GPU; vLLM takes 30% of it")
    assert what.startswith("weights, 4.0 GiB per step, within each GPU")
    assert lines("vllm/8gpus", count=8)[0].startswith("8 ranks; each trains")


@pytest.mark.parametrize(
    ("overrides", "who", "what"),
    [
        ([], "http://127.0.0.1:8000 samples", "4.0 GiB per step, by NCCL from rank 0"),
        (["rollout.server_transfer=files"], "http://127.0.0.1:8000 samples", "4.0 GiB per step, through /dev/shm"),
        (
            ["rollout.server_transfer=files", "rollout.server_sends_changes=true", "rollout.server_url=null"],
            "a server that the run starts",
            "4.0 GiB per step, at most, through /dev/shm",
        ),
    ],
)
def test_a_server_gets_weights_over_its_link(overrides, who, what):
    places = lines("vllm/4and4", *overrides)
    assert who in places[0]
    assert what in places[1]
    assert "over HTTP" in places[2]


def test_a_server_that_draws_ahead_samples_meanwhile():
    one, two = (lines("vllm/4and4", f"rollout.steps_ahead={count}")[0] for count in (1, 2))
    assert one.endswith("samples the batch of the next step meanwhile")
    assert two.endswith("samples the batch of 2 steps later meanwhile")


def test_requests_grow_with_the_prompts():
    few, many = (lines("vllm/4and4", f"prompts_per_step={count}")[2] for count in (8, 32))
    size = lambda line: float(line.split("at most ")[1].split()[0])  # noqa: E731
    assert size(many) == pytest.approx(4 * size(few), rel=0.05)
