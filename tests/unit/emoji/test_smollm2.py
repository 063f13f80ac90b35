"""SmolLM2 from a GGUF file: what is refused, and that a converted model keeps its weights and words."""

import importlib.util
import json
import re

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, LlamaForCausalLM

from tiny_language import write_language
from vcsd.emoji import smollm2
from vcsd.emoji.smollm2 import convert, language_identity, tokenizer_identity
from vcsd.errors import ConfigError, install_command


def test_another_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04")
    for name in ("model.gguf", "none.gguf"):
        with pytest.raises(ConfigError, match="is not a GGUF file"):
            convert(tmp_path / name, tmp_path / "out")


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=re.escape(install_command("emoji"))):
        convert(tmp_path / "model.gguf", tmp_path / "out")


NAMES = {
    **{"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"},
    **{"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"},
    **{"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"},
}


def gguf_name(name):
    """The name of a weight in llama.cpp."""
    plain = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in plain:
        return plain[name]
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"


def interleaved(weight, heads):
    """The rows of a projection in llama.cpp's order: the two halves of a head take turns."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(language, path, end=2):
    model, tokenizer = LlamaForCausalLM.from_pretrained(language), AutoTokenizer.from_pretrained(language)
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    tree = tokenizer.backend_tokenizer
    vocabulary = sorted(tree.get_vocab(), key=tree.get_vocab().get)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in vocabulary])
    merges = json.loads(tree.to_str())["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    for kind, number in (("bos", 1), ("eos", end), ("unk", 0), ("pad", end)):
        getattr(writer, f"add_{kind}_token_id")(number)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        array = weight.float().numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(interleaved(array, heads) if heads else array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("end", [2, 1])  # transformers 5.17 reads 1 from the file of SmolLM2
def test_a_converted_model_keeps_its_weights_and_its_words_and_ends_like_chatml(tmp_path, end):
    language = write_language(tmp_path / "language")
    write_gguf(language, tmp_path / "tiny.gguf", end)
    convert(tmp_path / "tiny.gguf", tmp_path / "converted")
    before, after = (LlamaForCausalLM.from_pretrained(folder) for folder in (language, tmp_path / "converted"))
    assert "quantization_config" not in after.config.to_dict()
    assert after.dtype == torch.bfloat16
    for name, weight in before.state_dict().items():
        assert torch.equal(after.state_dict()[name], weight.bfloat16()), name
    one, other = (AutoTokenizer.from_pretrained(folder) for folder in (language, tmp_path / "converted"))
    text = "<|im_start|>user\nWhat color is the banana?<|im_end|>\n"
    assert other(text)["input_ids"] == one(text)["input_ids"]
    assert other.eos_token == other.pad_token == "<|im_end|>"
    assert after.generation_config.eos_token_id == 2
    assert tokenizer_identity(tmp_path / "converted") == tokenizer_identity(language)


def test_the_hash_of_a_tokenizer_changes_with_its_end_token_and_its_words_but_not_with_its_files(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(write_language(tmp_path / "one"))
    before = tokenizer_identity(tmp_path / "one")
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.save_pretrained(tmp_path / "other")
    assert tokenizer_identity(tmp_path / "other") == before
    tokenizer.eos_token = "<|im_start|>"
    tokenizer.save_pretrained(tmp_path / "other")
    assert tokenizer_identity(tmp_path / "other") != before
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.add_tokens(["banana"])
    tokenizer.save_pretrained(tmp_path / "other")
    assert tokenizer_identity(tmp_path / "other") != before


def test_the_hash_of_weights_is_that_of_their_values_and_not_of_their_files(tmp_path):
    write_language(tmp_path / "one")
    before = language_identity(tmp_path / "one")
    weights = load_file(tmp_path / "one" / "model.safetensors")
    (tmp_path / "other").mkdir()
    path = tmp_path / "other" / "model.safetensors"
    save_file(dict(reversed(weights.items())), path, metadata={"written": "later"})
    assert language_identity(tmp_path / "other") == before
    name = next(iter(weights))
    save_file(weights | {name: weights[name] + 1}, path)
    assert language_identity(tmp_path / "other") != before
    with pytest.raises(ConfigError, match="holds no weights"):
        language_identity(tmp_path)
