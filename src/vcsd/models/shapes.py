"""The shapes of the paper's six models as data, each with its source, and any model's cost in operations.

Shapes need no weights: they are enough to count parameters, operations and bytes (`vcsd.projection`), and to
build a model with random weights for a benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transformers import PretrainedConfig

_PATCHES = {"patch_size": 16, "spatial_merge_size": 2, "num_position_embeddings": 2304}
_SMALL_TOWER = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, **_PATCHES}
_LARGE_TOWER = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, **_PATCHES}
_POSITIONS = {"rope_type": "default", "mrope_interleaved": True}
_DENSE_TEXT = {
    **{"vocab_size": 151_936, "head_dim": 128, "num_key_value_heads": 8, "max_position_embeddings": 262_144},
    "rope_parameters": {**_POSITIONS, "rope_theta": 5e6, "mrope_section": [24, 20, 20]},
}
_HYBRID_TEXT = {
    **{"vocab_size": 248_320, "head_dim": 256, "max_position_embeddings": 262_144, "linear_conv_kernel_dim": 4},
    **{"linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
    "rope_parameters": {**_POSITIONS, "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]},
}
_ARCHITECTURES = {"qwen3_vl": "Qwen3VL", "qwen3_5": "Qwen3_5"}

SEEN = "the released config.json"
ASSUMED = "public descriptions; its config.json was not seen, so compare before you rely on it"


@dataclass(frozen=True)
class ModelShape:
    """The sizes of one released model."""

    hub_id: str
    family: str
    text: Mapping[str, Any]
    vision: Mapping[str, Any]
    has_tied_head: bool
    source: str = SEEN

    def config(self, **ids: int) -> PretrainedConfig:
        """Build transformers' config of these shapes; `ids` may set special tokens."""
        import transformers

        make = getattr(transformers, f"{_ARCHITECTURES[self.family]}Config")
        built: PretrainedConfig = make(
            text_config=dict(self.text), vision_config=dict(self.vision), tie_word_embeddings=self.has_tied_head, **ids
        )
        return built


def _dense(hub_id: str, layers: int, width: int, inner: int, heads: int, *, is_large: bool = False) -> ModelShape:
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": inner}
    deepstack = [8, 16, 24] if is_large else [5, 11, 17]
    tower = {**(_LARGE_TOWER if is_large else _SMALL_TOWER), "deepstack_visual_indexes": deepstack}
    text = {**_DENSE_TEXT, **sizes, "num_attention_heads": heads}
    return ModelShape(hub_id, "qwen3_vl", text, {**tower, "out_hidden_size": width}, not is_large)


def _hybrid(
    hub_id: str, layers: int, width: int, inner: int, heads: tuple[int, int, int], *, is_large: bool, source: str
) -> ModelShape:
    queries, keys, values = heads
    text = {
        **_HYBRID_TEXT,
        **{"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": inner},
        **{"num_attention_heads": queries, "num_key_value_heads": keys, "linear_num_value_heads": values},
    }
    tower = {**(_LARGE_TOWER if is_large else _SMALL_TOWER), "deepstack_visual_indexes": [], "out_hidden_size": width}
    return ModelShape(hub_id, "qwen3_5", text, tower, not is_large, source)


SHAPES: Mapping[str, ModelShape] = {
    "qwen3_vl_2b": _dense("Qwen/Qwen3-VL-2B-Instruct", 28, 2048, 6144, 16),
    "qwen3_vl_4b": _dense("Qwen/Qwen3-VL-4B-Instruct", 36, 2560, 9728, 32),
    "qwen3_vl_8b": _dense("Qwen/Qwen3-VL-8B-Instruct", 36, 4096, 12_288, 32, is_large=True),
    "qwen3_5_2b": _hybrid("Qwen/Qwen3.5-2B", 24, 2048, 6144, (8, 2, 16), is_large=False, source=SEEN),
    "qwen3_5_4b": _hybrid("Qwen/Qwen3.5-4B", 32, 2560, 9216, (16, 4, 32), is_large=False, source=ASSUMED),
    "qwen3_5_9b": _hybrid("Qwen/Qwen3.5-9B", 32, 4096, 12_288, (16, 4, 32), is_large=True, source=ASSUMED),
}
"""The paper's models by the names of their recipes. Tied heads of Qwen3.5 are assumed for every size."""


def known_shape(hub_id: str) -> ModelShape | None:
    """Return the shapes of a released model by its hub id, in any case; None for another model.

    >>> known_shape("qwen/qwen3-vl-2b-instruct").text["num_hidden_layers"]
    28
    """
    return next((shape for shape in SHAPES.values() if shape.hub_id.lower() == hub_id.lower()), None)


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of a forward per text token, (query, key) pair and image; of the loss per position."""

    per_token: float
    per_pair: float
    per_image: float
    per_position: float
    """Five matrix products, two operations per weight each."""
    per_image_attention: float = 0.0
    """The part of `per_image` that is attention between patches."""

    @property
    def attention(self) -> Operations:
        """The part that is attention."""
        return Operations(0.0, self.per_pair, self.per_image_attention, 0.0, self.per_image_attention)


def work_of(config: Any, num_visual: int) -> Operations:
    """Count 2 per weight and token, and 4 per pair, head and width; ignore norms and other small operations."""
    text, vision = TextShape.of(config), VisionShape.of(config)
    weights = text.num_layers * 3 * text.width * text.inner + text.num_full * text.attention
    weights += text.num_linear * text.linear
    patches, tower = 4 * num_visual, vision.width
    per_patch = vision.depth * (4 * tower**2 + 2 * tower * vision.inner)
    merger = num_visual * 4 * tower * (4 * tower + text.width) * vision.num_mergers
    attention = 4 * vision.depth * tower * patches**2
    image = 2 * patches * per_patch + 2 * merger + attention
    return Operations(2 * weights, 4 * text.num_full * text.heads, image, 10 * text.width * text.vocabulary, attention)


@dataclass(frozen=True)
class TextShape:
    """The sizes of a language model that decide its cost. `attention` and `linear` are weights of one such layer."""

    num_full: int
    num_linear: int
    width: int
    inner: int
    heads: int
    key_values: int
    """Width of the keys and values together."""
    attention: int
    linear: int
    vocabulary: int
    linear_width: int
    """Width of queries, keys and values of a delta net together."""

    @property
    def num_layers(self) -> int:
        """All layers."""
        return self.num_full + self.num_linear

    @classmethod
    def of(cls, config: Any) -> TextShape:
        """Read the sizes from a config of transformers."""
        text = config.get_text_config()
        types: Sequence[str] = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
        num_linear, wide = list(types).count("linear_attention"), text.hidden_size
        head_dim = getattr(text, "head_dim", None) or wide // text.num_attention_heads
        key_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        heads, key_values = text.num_attention_heads * head_dim, 2 * key_heads * head_dim
        attention, linear, linear_width = wide * (2 * heads + key_values), 0, 0
        if num_linear:
            attention += wide * heads  # Qwen3.5's attention has an output gate as wide as its queries
            keys = text.linear_num_key_heads * text.linear_key_head_dim
            values = text.linear_num_value_heads * text.linear_value_head_dim
            # projections in and out; the state is read, corrected and written once per token
            linear = wide * (2 * keys + 3 * values) + 3 * values * text.linear_key_head_dim
            linear_width = 2 * keys + values
        return cls(
            len(types) - num_linear,
            num_linear,
            wide,
            getattr(text, "intermediate_size", None) or 4 * wide,
            heads,
            key_values,
            attention,
            linear,
            text.vocab_size,
            linear_width,
        )


@dataclass(frozen=True)
class VisionShape:
    """The sizes of a vision tower that decide its cost; zeros for a tower that is described in another way."""

    depth: int
    width: int
    inner: int
    num_mergers: int

    @classmethod
    def of(cls, config: Any) -> VisionShape:
        """Read the sizes from a config of transformers."""
        vision = getattr(config, "vision_config", None)
        depth = getattr(vision, "depth", None) or getattr(vision, "num_hidden_layers", None) or 0
        width, inner = (getattr(vision, name, None) or 0 for name in ("hidden_size", "intermediate_size"))
        return cls(depth, width, inner, 1 + len(getattr(vision, "deepstack_visual_indexes", None) or []))


def shared_flops(work: Operations, prompt: int, responses: Sequence[int]) -> float:
    """Operations of a forward over one group with a shared prefix."""
    pairs = prompt**2 / 2 + sum(prompt * r + r**2 / 2 for r in responses)
    return work.per_image + (prompt + sum(responses)) * work.per_token + pairs * work.per_pair
