"""The sections of a recipe: one class per section, one line per key with its default and meaning.

Every default is the paper's where the paper gives one. Settings that TrainingArguments has are not declared again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from vcsd.errors import ConfigError, did_you_mean, shown
from vcsd.evaluation.benchmarks import PUBLISHED
from vcsd.evaluation.benchmarks.world_suites import ALL, WORLD

LONGEST = 2**20
"""Tokens of a prompt or a response: four times the positions of the models of the paper."""


_DORA = "An average of DoRA's magnitudes and factors is no average of its weights. Use plain LoRA: lora.rank."
_WHOLE_MODULES = (
    "Checkpoints of adapters hold no whole modules. lora.vision: true adapts the tower and the projector; without "
    "lora.rank, whole weights are trained."
)
_LAYERS = (
    "A recipe adapts every linear layer of the language model, with lora.vision: true of the tower and the projector "
    "too, and never the head, whose weight scoring reads. For other layers use VCSDTrainer(peft_config=...)."
)
_HEAD = "Scoring reads the head's weight, which may be the embeddings', so neither can have an adapter. Leave it out."
_FEWER_BITS = (
    "An adapter trained on a quantized base does not fit the original weights. Leave it out; with trainer.bf16, the "
    "base is in bfloat16."
)
_DROPOUT = "Responses share one pass over their prompt, which would get one mask for all. Leave it out."

UNSUPPORTED: Mapping[str, str] = {
    **dict.fromkeys(("use_dora", "dora"), _DORA),
    "modules_to_save": _WHOLE_MODULES,
    **dict.fromkeys(("target_modules", "lora_target_modules", "lora_target"), _LAYERS),
    **dict.fromkeys(("lm_head", "head", "embed_tokens", "embeddings", "ensure_weight_tying"), _HEAD),
    **dict.fromkeys(("load_in_4bit", "load_in_8bit", "quantization_config", "quantization"), _FEWER_BITS),
    **dict.fromkeys(("lora_dropout", "dropout"), _DROPOUT),
}
"""Settings of adapters in other libraries that no recipe has: why, and what to use instead."""


class Section(BaseModel):
    """A section: unknown keys are errors, and values are not converted (no text is read as a number)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _check_switches(values: object) -> dict[str, bool | str]:
    """Check that the switches of a chat template are true, false or text."""
    if isinstance(values, Mapping) and all(
        isinstance(key, str) and isinstance(value, bool | str) for key, value in values.items()
    ):
        return dict(values)
    meaning = ModelConfig.model_fields["chat_template_kwargs"].description
    raise ConfigError([f"model.chat_template_kwargs = {shown(values)} is not a mapping of switches. {meaning}"])


def _check_columns(values: object) -> dict[str, str | None]:
    """Check that each field maps to the name of a column, or to null for none."""
    if isinstance(values, Mapping) and all(
        isinstance(key, str) and (value is None or isinstance(value, str)) for key, value in values.items()
    ):
        return dict(values)
    meaning = DataConfig.model_fields["columns"].description
    raise ConfigError([f"data.columns = {shown(values)} is not a mapping of names. {meaning}"])


class ModelConfig(Section):
    """The student and the sizes of its images."""

    path: str = Field(min_length=1, description="A folder or hub id, such as Qwen/Qwen3-VL-2B-Instruct.")
    min_pixels: int | None = Field(None, ge=1, description="Smaller images are enlarged; null keeps the processor's.")
    max_pixels: int | None = Field(None, ge=1, description="Larger images are reduced; null keeps the processor's.")
    freeze_vision: bool = Field(False, description="true freezes the vision tower.")
    freeze_projector: bool = Field(False, description="true freezes the projector from vision to language.")
    freeze_language: bool = Field(False, description="true freezes the language model, embeddings and head.")
    dither: bool = Field(
        False, description="true adds offsets below bfloat16's precision once, so that passes see small updates."
    )
    chat_template_kwargs: Annotated[dict[str, bool | str], PlainValidator(_check_switches)] = Field(
        default_factory=dict, description="Switches of the chat template, such as {enable_thinking: false}."
    )

    @model_validator(mode="after")
    def _check_order(self) -> ModelConfig:
        if self.min_pixels is not None and self.max_pixels is not None and self.min_pixels > self.max_pixels:
            raise ConfigError([f"model.min_pixels = {self.min_pixels} exceeds model.max_pixels = {self.max_pixels}."])
        return self


class AdapterConfig(Section):
    """LoRA adapters, which are trained on a frozen model."""

    rank: int | None = Field(
        None, ge=1, le=8192, description="The rank of each adapter; null trains the weights themselves."
    )
    scale: float = Field(2.0, gt=0, description="The factor of B A in the weights; PEFT's lora_alpha / r.")
    vision: bool = Field(False, description="true adapts the vision tower and the projector too.")
    train_a: bool = Field(False, description="true trains both factors; false trains B, whose average is exact.")

    @model_validator(mode="after")
    def _check_rank(self) -> AdapterConfig:
        given = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        if self.rank is None and given:
            raise ConfigError([f"lora.{given[0]} has no effect without lora.rank. Set lora.rank, such as 32."])
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the model with adapters."""
        return ("language", "vision", "projector") if self.vision else ("language",)


class DataConfig(Section):
    """The questions and images."""

    path: str = Field(min_length=1, description="A file or folder of prompts with images.")
    images: str | None = Field(
        None, min_length=1, description="Folder that image paths start from and stay in; null: the file's folder."
    )
    split: str | None = Field(None, min_length=1, description="One of several splits; null if there is only one.")
    columns: Annotated[dict[str, str | None], PlainValidator(_check_columns)] = Field(
        default_factory=dict, description="Field to column, such as {prompt: problem, id: null}."
    )
    multi_image: Literal["keep", "drop"] | None = Field(None, description="Rows with several images; null: by format.")
    text_only: Literal["keep", "drop"] | None = Field(None, description="Rows without an image; null: by format.")
    instruction: str | None = Field(None, min_length=1, description="Text to append to every question.")
    max_prompt_tokens: int | None = Field(
        None,
        ge=1,
        le=LONGEST,
        description="Longer prompts are skipped; null: the model's positions less rollout.max_new_tokens.",
    )
    max_skipped_share: float = Field(0.05, ge=0, le=1, description="A larger share of unusable rows stops the run.")

    def for_loading(self) -> dict[str, Any]:
        """Return the arguments of `load_examples`."""
        return self.model_dump(exclude={"max_prompt_tokens", "max_skipped_share"})


def _check_names(values: object) -> list[str]:
    """Check the names of one or several benchmarks."""
    names = [values] if isinstance(values, str) else values
    meaning = EvaluationConfig.model_fields["benchmarks"].description
    if not _is_list_of_text(names):
        raise ConfigError([f"evaluation.benchmarks = {shown(values)} is not a list of names. {meaning}"])
    known = [*PUBLISHED, "all", *WORLD, ALL]
    unknown = [name for name in names if name not in known]
    if unknown:
        is_file = unknown[0].lower().endswith(".tsv")
        advice = "For a TSV: evaluation.tsv=FILE." if is_file else did_you_mean(unknown[0], known)
        raise ConfigError([f"evaluation.benchmarks = {shown(values)} has an unknown name. {advice} {meaning}"])
    return list(names)


def _check_files(values: object) -> list[str] | None:
    """Check the path of one file, or those of several."""
    paths = [values] if isinstance(values, str) else values
    if paths is None:
        return None
    meaning = EvaluationConfig.model_fields["tsv"].description
    if not _is_list_of_text(paths) or not paths:
        raise ConfigError([f"evaluation.tsv = {shown(values)} is not a path or a list of paths. {meaning}"])
    if not all(path.lower().endswith(".tsv") for path in paths):
        raise ConfigError([f"evaluation.tsv = {shown(values)} names a file that does not end in .tsv. {meaning}"])
    return list(paths)


def _is_list_of_text(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) and value for value in values)


class EvaluationConfig(Section):
    """The questions for the student during training."""

    every: int | None = Field(None, ge=1, description="Evaluate before the first step and every N steps; null: never.")
    benchmarks: Annotated[list[str], PlainValidator(_check_names)] = Field(
        default_factory=lambda: ["all"],
        description="Names such as [VStarBench, MMStar, world/small]; all, world. With evaluation.tsv the default is "
        "[], for none.",
    )
    tsv: Annotated[list[str] | None, PlainValidator(_check_files)] = Field(
        None, description="One or several TSV files of your own questions, asked in addition to the named benchmarks."
    )
    data: str | None = Field(None, min_length=1, description="The folder of the benchmarks' files; null: $LMUData.")
    limit: int | None = Field(
        None, ge=1, description="Ask at most N questions per benchmark: a fixed random sample; null asks all."
    )
    style: str = Field("vlmevalkit", min_length=1, description="Prompt style: vlmevalkit, direct or cot.")
    mode: Literal["final", "exact"] = Field("final", description="How to read answers; final allows reasoning first.")
    sampling: str = Field("paper", min_length=1, description="A preset, such as paper or paper,max_new_tokens=512.")
    allow_unknown_data: bool = Field(False, description="true accepts files that differ from the published ones.")

    @model_validator(mode="before")
    @classmethod
    def _ask_own_questions_alone(cls, values: object) -> object:
        """Ask no benchmarks if a recipe names none but has questions of its own: `all` would be seven downloads."""
        if isinstance(values, Mapping) and values.get("tsv") is not None and "benchmarks" not in values:
            return {**values, "benchmarks": []}
        return values

    @model_validator(mode="after")
    def _check_effect(self) -> EvaluationConfig:
        if self.tsv is not None and "every" not in self.model_fields_set:
            value = f"evaluation.tsv = {shown(self.tsv)}"
            raise ConfigError([f"{value} has no effect without evaluation.every. Set it, such as 30."])
        if self.tsv is None and not self.benchmarks:
            raise ConfigError(["evaluation.benchmarks = [] names none. Name some, or set evaluation.tsv."])
        return self


class RolloutConfig(Section):
    """How rollouts are sampled. The sampling temperature is not the distillation temperature."""

    num_per_prompt: int = Field(8, ge=1, le=4096, description="Rollouts per prompt; the paper uses 8.")
    max_new_tokens: int = Field(
        1024, ge=1, le=LONGEST, description="The longest response, in tokens; the authors' code uses 1024."
    )
    temperature: float = Field(
        1.0, ge=0, description="1 samples from the student itself; 0 is greedy, else 0.01 or more."
    )
    top_p: float = Field(1.0, gt=0, le=1, description="1 keeps every token.")
    top_k: int | None = Field(None, ge=1, description="null keeps every token.")
    steps_ahead: int = Field(
        0, ge=0, le=8, description="How many steps early a batch is drawn; 1 lets a server sample during a step."
    )
    engine: Literal["transformers", "vllm", "vllm_server"] = Field(
        "transformers", description="vllm samples in the training process, vllm_server on a server."
    )
    vllm_memory_share: float = Field(
        0.3, gt=0, lt=1, description="Share of the GPU's memory for vLLM while it samples."
    )
    server_url: str | None = Field(
        None,
        min_length=1,
        description="A running server: http://127.0.0.1:8000; null starts one that ends with the run.",
    )
    server_transfer: Literal["files", "nccl"] = Field(
        "files", description="How a server gets weights: files on one machine, nccl between GPUs."
    )
    server_sends_changes: bool = Field(False, description="true sends a server only what changed; not with nccl.")

    @model_validator(mode="after")
    def _check_temperature(self) -> RolloutConfig:
        # The same rule as in `vcsd.rollout.sampling`, which imports torch; a test compares the two.
        if 0 < self.temperature < 0.01:
            value = f"rollout.temperature = {shown(self.temperature)}"
            raise ConfigError([f"{value} is neither 0 (greedy) nor at least 0.01."])
        return self

    @model_validator(mode="after")
    def _check_server(self) -> RolloutConfig:
        names = [name for name in type(self).model_fields if name.startswith("server_")]
        given = [name for name in names if getattr(self, name) != type(self).model_fields[name].default]
        if given and self.engine != "vllm_server":
            raise ConfigError([f"rollout.{given[0]} has no effect without rollout.engine: vllm_server."])
        if self.server_sends_changes and self.server_transfer == "nccl":
            raise ConfigError(["rollout.server_sends_changes = true needs rollout.server_transfer: files."])
        return self
