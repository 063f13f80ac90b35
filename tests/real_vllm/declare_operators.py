"""Declare the operators that torchvision's CUDA wheel lacks on a machine without CUDA, so that it can be imported."""

import sysconfig
from pathlib import Path

EXTENSION = Path(sysconfig.get_paths()["purelib"]) / "torchvision" / "extension.py"
DECLARATION = """

if not _has_ops():
    _declared = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _declared.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

if __name__ == "__main__":
    text = EXTENSION.read_text()
    if DECLARATION not in text:
        EXTENSION.write_text(text + DECLARATION)
