"""The groups of a recipe: one class each, one line per key, with its default and what it means.

Few keys, and every default is the paper's where the paper has one. What TrainingArguments already names is not
declared here again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from vcsd.errors import ConfigError, did_you_mean
from vcsd.evaluation.benchmarks import LAYOUTS
from vcsd.evaluation.world import ALL, WORLD
from vcsd.recipe_text import shown


class Group(BaseModel):
    """A group of keys: unknown ones are errors, and values are what they look like (no text read as a number)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _check_switches(values: object) -> dict[str, Any]:
    """Names with a value that a chat template may ask for: true, false, a number or a text."""
    if isinstance(values, Mapping) and all(
        isinstance(key, str) and isinstance(value, bool | str) for key, value in values.items()
    ):
        return dict(values)
    meaning = ModelConfig.model_fields["chat_template_kwargs"].description
    raise ConfigError([f"model.chat_template_kwargs = {shown(values)} is not a group of switches. {meaning}"])


def _check_columns(values: object) -> dict[str, Any]:
    """Fields with the name of a column, or null for none. Which fields there are, the data says."""
    if isinstance(values, Mapping) and all(
        isinstance(key, str) and (value is None or isinstance(value, str)) for key, value in values.items()
    ):
        return dict(values)
    meaning = DataConfig.model_fields["columns"].description
    raise ConfigError([f"data.columns = {shown(values)} is not a group of names. {meaning}"])


class ModelConfig(Group):
    """The student, and how large it sees."""

    path: str = Field(min_length=1, description="A folder or hub id, such as Qwen/Qwen3-VL-2B-Instruct.")
    min_pixels: int | None = Field(None, ge=1, description="Smaller images are enlarged; null keeps the processor's.")
    max_pixels: int | None = Field(None, ge=1, description="Larger images are reduced; null keeps the processor's.")
    freeze_vision: bool = Field(False, description="true keeps the vision tower as it is; the paper trains it.")
    freeze_projector: bool = Field(False, description="true keeps what maps vision into the language model as it is.")
    freeze_language: bool = Field(False, description="true keeps the language model, embeddings and head as they are.")
    chat_template_kwargs: Annotated[dict[str, Any], PlainValidator(_check_switches)] = Field(
        default_factory=dict, description="Switches of the chat template, such as {enable_thinking: false}."
    )

    @model_validator(mode="after")
    def _check_order(self) -> ModelConfig:
        if self.min_pixels is not None and self.max_pixels is not None and self.min_pixels > self.max_pixels:
            raise ConfigError([f"model.min_pixels = {self.min_pixels} exceeds model.max_pixels = {self.max_pixels}."])
        return self


class DataConfig(Group):
    """The questions and images."""

    path: str = Field(min_length=1, description="A file or folder of prompts with images.")
    images: str | None = Field(None, min_length=1, description="Where image paths start; null is beside the file.")
    split: str | None = Field(None, min_length=1, description="One of several splits; null where there is one.")
    columns: Annotated[dict[str, Any], PlainValidator(_check_columns)] = Field(
        default_factory=dict, description="Field to column, such as {prompt: problem, id: null}."
    )
    multi_image: Literal["keep", "drop"] | None = Field(None, description="Rows with several images; null: as usual.")
    text_only: Literal["keep", "drop"] | None = Field(None, description="Rows without an image; null: as usual.")
    instruction: str | None = Field(None, min_length=1, description="Text to end every question with.")
    max_prompt_tokens: int | None = Field(None, ge=1, description="Longer prompts are skipped; null keeps all.")
    max_skipped_share: float = Field(0.05, ge=0, le=1, description="More unusable rows than this stop the run.")


def _check_names(values: object) -> list[str]:
    """Names of benchmarks, one or several."""
    names = [values] if isinstance(values, str) else values
    meaning = EvaluationConfig.model_fields["benchmarks"].description
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError([f"evaluation.benchmarks = {shown(values)} is not a list of names. {meaning}"])
    known = [*LAYOUTS, "all", *WORLD, ALL]
    unknown = [name for name in names if name not in known]
    if unknown:
        advice = did_you_mean(unknown[0], known)
        raise ConfigError([f"evaluation.benchmarks = {shown(values)} has an unknown name. {advice} {meaning}"])
    return list(names)


class EvaluationConfig(Group):
    """What the student is asked while it is trained."""

    every: int | None = Field(None, ge=1, description="Steps between evaluations, also before the first; null is off.")
    benchmarks: Annotated[list[str], PlainValidator(_check_names)] = Field(
        default_factory=lambda: ["all"], description="Names such as [VStarBench, MMStar, world/small]; all, world."
    )
    data: str | None = Field(None, min_length=1, description="The folder of the benchmarks' files; null is $LMUData.")
    limit: int | None = Field(
        None, ge=1, description="Questions asked of each benchmark, evenly spread; null asks all."
    )
    style: str = Field("vlmevalkit", min_length=1, description="Prompt style: vlmevalkit, direct or cot.")
    mode: Literal["final", "exact"] = Field("final", description="How answers are read; final reads reasoned ones.")
    sampling: str = Field("paper", min_length=1, description="Such as paper, or paper,max_new_tokens=512.")
    allow_unknown_data: bool = Field(False, description="true goes on with files that are not the published ones.")


class RolloutConfig(Group):
    """How the student answers. The sampling temperature is not the distillation temperature."""

    num_per_prompt: int = Field(8, ge=1, description="Answers sampled per prompt; the paper uses 8.")
    max_new_tokens: int = Field(1024, ge=1, description="The longest answer, in tokens; the authors' code uses 1024.")
    temperature: float = Field(
        1.0, ge=0, description="1 samples from the student itself; 0 is greedy, else 0.01 or more."
    )
    top_p: float = Field(1.0, gt=0, le=1, description="1 keeps every token.")
    top_k: int | None = Field(None, ge=1, description="null keeps every token.")

    @model_validator(mode="after")
    def _check_temperature(self) -> RolloutConfig:
        # As `vcsd.rollout.sampling` says, which imports torch; a test holds the two together.
        if 0 < self.temperature < 0.01:
            given = f"rollout.temperature = {shown(self.temperature)}"
            raise ConfigError([f"{given} is neither 0 (greedy) nor at least 0.01."])
        return self
