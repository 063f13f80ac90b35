"""Which adapters can be trained. Everything else is refused in one sentence that says what to do instead.

Supported is LoRA as PEFT would train it: any rank, rank and alpha patterns, rsLoRA, on layers of the language model,
the projector and the vision tower. Other PEFT methods, and variants of LoRA that change the base, the forward pass or
what is averaged, are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError
from vcsd.models.family import base_model

if TYPE_CHECKING:
    from peft import PeftConfig
    from torch import nn

ADAPTER = "default"
"""The name of the only adapter, as PEFT calls it."""

INITIALISATIONS = (True, False, "gaussian", "orthogonal")
"""Values of `init_lora_weights` that leave the base as it is."""

_REFUSED: dict[str, tuple[object, str]] = {
    "use_dora": (False, "An average of DoRA's magnitudes and factors is no average of its weights. Use plain LoRA."),
    "modules_to_save": (
        None,
        "Checkpoints hold adapters, not whole modules. Put the modules' linear layers into target_modules.",
    ),
    "trainable_token_indices": (None, "The head may share the embeddings, and scoring reads its weight. Leave it out."),
    "target_parameters": (None, "Only layers can have adapters, not the parameters of experts. Use target_modules."),
    "lora_dropout": (0.0, "Responses share one pass over their prompt, which would get one mask for all. Set it to 0."),
    "bias": ("none", "The base stays frozen, biases included."),
    "layer_replication": (None, "Student and base must have the same layers."),
    "ensure_weight_tying": (False, "A tied head cannot have an adapter."),
}
"""Field of LoraConfig -> the only allowed value, and why."""

_VARIANTS = (
    *("eva_config", "corda_config", "lora_ga_config", "velora_config", "monteclora_config", "kasa_config"),
    *("arrow_config", "use_bdlora", "use_qalora", "alora_invocation_tokens", "megatron_config", "loftq_config"),
)
"""Fields of LoraConfig that select a variant of LoRA."""


def check_config(config: PeftConfig) -> None:
    """Raise a ConfigError that names every setting that cannot be trained."""
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    if kind != "LORA":
        learns = "learns a prompt, which scoring would ignore" if config.is_prompt_learning else "is not LoRA"
        raise ConfigError([f"peft_config is a {type(config).__name__} ({kind}), which {learns}. Use peft.LoraConfig."])
    problems = [
        f"peft_config.{name} = {value!r} cannot be trained. {advice}"
        for name, (allowed, advice) in _REFUSED.items()
        if (value := getattr(config, name, allowed)) != allowed and value not in ([], {})
    ]
    problems += [
        f"peft_config.{name} selects a variant of LoRA, which cannot be trained. Leave it out."
        for name in _VARIANTS
        if getattr(config, name, None)
    ]
    start: Any = getattr(config, "init_lora_weights", True)
    if start not in INITIALISATIONS:
        problems.append(
            f"peft_config.init_lora_weights = {start!r} changes the base, which must stay the model in its folder. "
            f"Allowed: {', '.join(map(str, INITIALISATIONS))}."
        )
    if problems:
        raise ConfigError(problems)


def refuse_quantized(model: nn.Module) -> None:
    """Raise a ConfigError for a base in 8 bits or fewer: rollouts, scores and the merged model would not agree."""
    quantizer = getattr(base_model(model), "hf_quantizer", None)
    is_quantized = getattr(base_model(model), "is_quantized", False) or quantizer is not None
    if is_quantized or getattr(base_model(model).config, "quantization_config", None):
        raise ConfigError(
            [
                "the base is quantized (quantization_config), and an adapter trained on it does not fit the original "
                "weights. Load the base with dtype=torch.bfloat16; it is shared by student, teacher and rollouts."
            ]
        )


def check_adapted(model: nn.Module) -> None:
    """Raise a ConfigError unless a model with PEFT layers is a PeftModel with one trainable, unmerged LoRA adapter."""
    configs = getattr(model, "peft_config", None)
    if configs is None or getattr(model, "get_base_model", None) is None:
        raise ConfigError(
            [
                "the model has PEFT layers without being a PeftModel, so their settings are unknown. "
                "Pass the plain model and peft_config, or make it with peft.get_peft_model."
            ]
        )
    if len(configs) != 1:
        raise ConfigError(
            [f"the model has {len(configs)} adapters ({', '.join(configs)}). Keep one: merge or delete the others."]
        )
    name, config = next(iter(configs.items()))
    if name != ADAPTER:
        raise ConfigError([f"the adapter is named {name!r}. Load it as {ADAPTER!r}, which is PEFT's own default."])
    check_config(config)
    refuse_quantized(model)
    _refuse_tied(model)
    if any(getattr(module, "merged", False) for module in model.modules()):
        raise ConfigError(["the adapter is merged into the base, which must stay as it was. Call unmerge_adapter()."])
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            ["no weight of the adapter is trained. Load it with PeftModel.from_pretrained(..., is_trainable=True)."]
        )


def _refuse_tied(model: nn.Module) -> None:
    """Raise a ConfigError for an adapter on embeddings that are also the head."""
    base = base_model(model)
    embeddings: Any = base.get_input_embeddings()
    head: Any = base.get_output_embeddings()  # type: ignore[no-untyped-call]
    inner = getattr(embeddings, "base_layer", None)
    if inner is not None and getattr(inner, "weight", None) is getattr(head, "weight", head):
        raise ConfigError(
            [
                "the embeddings have an adapter, and the head is the same tensor without it. "
                "Leave embed_tokens out of target_modules."
            ]
        )
