"""What vLLM's server is started with: for rollouts it takes weights, for evaluation nobody can replace its own."""

import json

import pytest

from tiny_models import build_model
from vcsd.rollout.vllm.in_process import tied_words
from vcsd.rollout.vllm.serve import parse, server_arguments


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The configurations of tiny models whose head is tied to their words."""
    made = {}
    for family in ("qwen3_vl", "qwen3_5"):
        made[family] = tmp_path_factory.mktemp(family)
        build_model(family).config.save_pretrained(made[family])
    return made


def arguments(folder, *options):
    return server_arguments(parse([str(folder), *options]))


def test_a_server_of_rollouts_starts_with_random_weights_and_takes_the_trainers(folders):
    given = arguments(folders["qwen3_vl"], "--transfer", "nccl")
    assert given[given.index("--load-format") + 1] == "dummy"
    assert json.loads(given[given.index("--weight-transfer-config") + 1]) == {"backend": "nccl"}
    assert given[given.index("--host") + 1] == "127.0.0.1"


def test_a_server_for_evaluation_loads_the_folder_and_takes_no_weights(folders):
    given = arguments(folders["qwen3_vl"], "--for-evaluation", "--", "--tensor-parallel-size", "2")
    assert not {"--load-format", "--weight-transfer-config", "--worker-extension-cls"} & set(given)
    assert "--enable-scale-out" in given  # requests of token ids
    assert given[-2:] == ["--tensor-parallel-size", "2"]


def test_tied_words_are_said_where_vllm_reads_them(folders, tmp_path):
    given = arguments(folders["qwen3_5"])
    assert json.loads(given[given.index("--hf-overrides") + 1]) == {"text_config": {"tie_word_embeddings": True}}
    build_model("qwen3_5", tie_word_embeddings=False).config.save_pretrained(tmp_path)
    assert tied_words(tmp_path) == {}
