"""Checkpoints: all that a run needs to go on bit for bit, in safetensors and JSON, whole or not there at all.

tensors.py   a safetensors file written piece by piece, so that saving needs no second copy of the model
folder.py    a folder that appears by one rename, with a manifest of sizes and hashes
state.py     what Trainer keeps in pickles, as tensors and JSON: optimizer, scheduler, random generators
export.py    a plain Hugging Face folder from a checkpoint

    checkpoint-10/
      student.safetensors  teacher.safetensors  optimizer.safetensors  random.safetensors
      trainer_state.json   run_state.json       manifest.json
      config.json          generation_config.json, and the processor's files as they came
"""

from vcsd.checkpoint.folder import (
    Contents,
    TensorFile,
    check_checkpoint,
    checkpoints_of,
    latest_checkpoint,
    write_checkpoint,
)

__all__ = ["Contents", "TensorFile", "check_checkpoint", "checkpoints_of", "latest_checkpoint", "write_checkpoint"]
