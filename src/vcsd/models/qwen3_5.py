"""Qwen3.5, dense and mixture of experts: three layers of four are gated delta nets, whose state is forked.

Positions, vision tower and head are Qwen3-VL's, without features added to early layers; `delta_net.py` has the rest.
"""

from vcsd.models.qwen3_vl import Qwen3VL


class Qwen35(Qwen3VL):
    """Shares prefixes by attention and by forking the delta nets' states."""

    name = "qwen3_5"


FAMILY = Qwen35()
