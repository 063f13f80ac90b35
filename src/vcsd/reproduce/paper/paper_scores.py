"""The scores that the paper reports, in percent: BLINK, MMStar, V*, MathVista, HR4K, HR8K, HallusionBench, Acc."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = ("BLINK", "MMStar", "VStarBench", "MathVista", "HRBench4K", "HRBench8K", "HallusionBench")

_MAIN = {
    "qwen3_vl_2b": """53.02 57.47 72.77 62.50 71.13 67.38 51.60 62.27
                      56.02 60.73 75.92 64.70 76.25 71.25 49.36 64.89
                      57.29 63.73 78.01 66.10 77.25 73.25 53.68 67.04""",
    "qwen3_vl_4b": """67.18 68.93 80.63 73.90 79.88 73.75 54.81 71.30
                      64.97 68.73 83.77 74.10 78.12 75.63 54.50 71.40
                      66.86 68.73 83.77 74.90 80.50 77.00 60.37 73.16""",
    "qwen3_vl_8b": """69.65 70.67 82.72 76.50 77.38 71.12 59.51 72.51
                      67.81 70.20 85.34 77.30 81.12 74.62 59.64 73.72
                      70.38 74.07 87.43 77.90 84.12 79.25 60.69 76.26""",
    "qwen3_5_2b": """59.02 67.67 83.25 74.10 73.75 72.25 50.22 68.61
                     59.44 67.00 79.58 69.70 75.00 68.75 43.76 66.18
                     64.86 69.40 83.77 76.50 78.50 70.75 56.77 71.51""",
    "qwen3_5_4b": """64.97 73.00 82.20 81.70 81.38 74.00 60.36 73.94
                     64.44 71.40 84.29 77.60 82.75 78.75 58.22 73.92
                     66.70 75.00 84.82 82.20 85.38 79.38 63.95 76.77""",
    "qwen3_5_9b": """66.70 74.60 83.25 81.60 82.38 77.38 58.89 74.97
                     67.65 72.27 87.96 78.80 81.50 78.12 56.80 74.73
                     72.23 78.87 85.86 85.00 87.00 81.50 64.19 79.24""",
}
_ABLATIONS = {
    "jsd": "57.08 62.33 76.44 65.70 75.37 73.00 53.86 66.25",
    "reverse_kl": "56.92 61.07 76.44 64.00 73.62 70.50 50.86 64.77",
    "noise": "58.23 63.60 76.44 67.20 76.38 73.25 54.87 67.14",
    "blur": "55.65 62.87 78.01 66.00 76.88 73.88 51.25 66.36",
    "no_image": "57.23 62.93 74.87 63.10 76.38 72.88 56.31 66.24",
    "no_anchor": "58.71 62.93 75.92 67.00 76.38 73.12 53.43 66.78",
}


def _numbers(line: str) -> tuple[float, ...]:
    return tuple(map(float, line.split()))


PAPER_SCORES: Mapping[str, tuple[float, ...]] = {
    **{
        f"{folder}/{model}": _numbers(line)
        for model, lines in _MAIN.items()
        for folder, line in zip(("base", "opsd_published", "paper"), lines.splitlines(), strict=True)
    },
    **{f"ablations/{name}": _numbers(line) for name, line in _ABLATIONS.items()},
}
"""By the name of the recipe; `base/MODEL` is the model before training. Figures without a table are not in it."""
