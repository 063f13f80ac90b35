"""Look at a model, a run or data: what the image changes, how a run went, whether the method can help.

from vcsd.inspect import open_model, token_contrast, write_contrast

world = open_model("world")
seen = token_contrast(world, "picture.png", "What color is the circle?")
write_contrast([seen], "contrast.html")
"""

from typing import TYPE_CHECKING

from vcsd import on_first_use

if TYPE_CHECKING:
    from vcsd.inspect.contrast_file import write_contrast
    from vcsd.inspect.contrast_generate import ContrastLogits, contrast_inputs
    from vcsd.inspect.image_tiles import TileMap, tile_map
    from vcsd.inspect.opened import OpenedModel, open_model
    from vcsd.inspect.token_scores import CandidateScore, ResponseContrast, TokenScore, token_contrast

__all__ = [
    "CandidateScore",
    "ContrastLogits",
    "OpenedModel",
    "ResponseContrast",
    "TileMap",
    "TokenScore",
    "contrast_inputs",
    "open_model",
    "tile_map",
    "token_contrast",
    "write_contrast",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "token_scores": "CandidateScore ResponseContrast TokenScore token_contrast",
        "contrast_generate": "ContrastLogits contrast_inputs",
        "opened": "OpenedModel open_model",
        "image_tiles": "TileMap tile_map",
        "contrast_file": "write_contrast",
    },
)
