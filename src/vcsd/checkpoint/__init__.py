"""Checkpoints: everything a run needs to resume bit for bit, in safetensors and JSON, written atomically.

tensors.py     writes a safetensors file in pieces, so that saving needs no second copy of the model
shards.py      writes tensors that are spread over ranks, each rank its part
saved.py       reads the tensors of a file or of shards
folder.py      writes a folder and renames it into place, with a manifest of sizes and hashes
disk_space.py  what a run's checkpoints need, and what is left on their disk
check.py       checks that a checkpoint is whole and of this run
state.py       optimizer, scheduler and random generators as tensors and JSON, where Trainer uses pickles
export.py      exports a checkpoint as a plain Hugging Face folder
lock.py        allows one process per run folder
whole_file.py  writes a text file that a reader sees whole or not at all

    checkpoint-10/
      student.safetensors  teacher.safetensors  optimizer.safetensors  random.safetensors
      trainer_state.json   run_state.json       provenance.json        manifest.json
      config.json          generation_config.json, and the processor's original files

If the weights are spread over ranks (FSDP2), each file of student, teacher and optimizer becomes a folder, `student/`,
with the files of all ranks. `TensorFile` reads both, whole or in part, so a checkpoint resumes at any number of ranks.
All ranks call `write_checkpoint`, `check_checkpoint` and `latest_whole`; an error on one is an error on all.
"""

from typing import TYPE_CHECKING

from vcsd import on_first_use

if TYPE_CHECKING:
    from vcsd.checkpoint.check import (
        DamagedCheckpointError,
        check_checkpoint,
        latest_whole,
        move_aside,
        refuse_other_run,
    )
    from vcsd.checkpoint.folder import Contents, checkpoints_of, latest_checkpoint, own_file, write_checkpoint
    from vcsd.checkpoint.saved import TensorFile

__all__ = [
    "Contents",
    "DamagedCheckpointError",
    "TensorFile",
    "check_checkpoint",
    "checkpoints_of",
    "latest_checkpoint",
    "latest_whole",
    "move_aside",
    "own_file",
    "refuse_other_run",
    "write_checkpoint",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "folder": "Contents checkpoints_of latest_checkpoint own_file write_checkpoint",
        "check": "DamagedCheckpointError check_checkpoint latest_whole move_aside refuse_other_run",
        "saved": "TensorFile",
    },
)
