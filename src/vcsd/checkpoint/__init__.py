"""Checkpoints: everything a run needs to resume bit for bit, in safetensors and JSON, written atomically.

tensors.py   writes a safetensors file in pieces, so that saving needs no second copy of the model
folder.py    writes a folder and renames it into place, with a manifest of sizes and hashes
state.py     optimizer, scheduler and random generators as tensors and JSON, where Trainer uses pickles
export.py    exports a checkpoint as a plain Hugging Face folder
lock.py      allows one process per run folder

    checkpoint-10/
      student.safetensors  teacher.safetensors  optimizer.safetensors  random.safetensors
      trainer_state.json   run_state.json       provenance.json        manifest.json
      config.json          generation_config.json, and the processor's original files
"""

from vcsd.checkpoint.folder import (
    Contents,
    DamagedCheckpointError,
    TensorFile,
    check_checkpoint,
    checkpoints_of,
    latest_checkpoint,
    latest_whole,
    move_aside,
    refuse_other_run,
    write_checkpoint,
)

__all__ = [
    "Contents",
    "DamagedCheckpointError",
    "TensorFile",
    "check_checkpoint",
    "checkpoints_of",
    "latest_checkpoint",
    "latest_whole",
    "move_aside",
    "refuse_other_run",
    "write_checkpoint",
]
