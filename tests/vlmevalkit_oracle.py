"""VLMEvalKit's own scorers, as an oracle that lies beside the environment and is never part of the package.

`make .oracle/.installed` puts ms-vlmeval and the few packages that its scorers need into a folder. Its plain import
would load every model and API it knows; empty stand-ins for two of its packages let the scorers be imported alone.
"""

import os
import sys
import types
from pathlib import Path

FOLDER = Path(os.environ.get("VCSD_ORACLE", Path(__file__).parents[1] / ".oracle")).resolve()


def is_there():
    return (FOLDER / "vlmeval" / "dataset" / "image_mcq.py").exists()


def load():
    """Its modules by name. Their folder stays last on the path, so that nothing of ours is replaced."""
    os.environ.pop("VERBOSE", None)  # would switch on another rule
    sys.path.append(str(FOLDER))
    for name, folder in (("vlmeval", FOLDER / "vlmeval"), ("vlmeval.dataset", FOLDER / "vlmeval" / "dataset")):
        stub = types.ModuleType(name)
        stub.__path__ = [str(folder)]
        sys.modules.setdefault(name, stub)
    from vlmeval.dataset import image_mcq, image_vqa, image_yorn
    from vlmeval.dataset.utils import yorn
    from vlmeval.utils import matching_util

    return types.SimpleNamespace(mcq=image_mcq, vqa=image_vqa, yorn=image_yorn, matching=matching_util, words=yorn)


class SilentJudge:
    """A judge that never helps, for MathVista, which insists on one."""

    def __init__(self, **_):
        pass

    def working(self):
        return True

    def generate(self, *_, **__):
        return "Failed to obtain answer via API."
