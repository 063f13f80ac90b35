"""Qwen3.5, dense and mixture of experts: three of four layers are gated delta nets, whose state is forked.

Positions, vision tower and head are those of Qwen3-VL, but no features are added to early layers.
"""

from typing import ClassVar

from vcsd.models.patch import Patch
from vcsd.models.qwen import delta_net, fused
from vcsd.models.qwen.qwen3_vl import SHARED_PATCHES, Qwen3VL


class Qwen35(Qwen3VL):
    """Shares prefixes through attention and by forking the states of the delta nets."""

    name = "qwen3_5"
    prefixes: ClassVar = {"qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe"}
    patches = (
        *SHARED_PATCHES,
        Patch("causal_conv1d_fn", delta_net.convolution),
        Patch("torch_chunk_gated_delta_rule", delta_net.recurrence),
        Patch("torch_recurrent_gated_delta_rule", delta_net.step),
        Patch("DecoderLayer.forward", fused.layer_forward),
        Patch("RMSNorm.forward", fused.zero_centred_forward),
        Patch("RMSNormGated.forward", fused.gated_forward),
        Patch("MLP.forward", fused.mlp_forward),
    )


FAMILY = Qwen35()
