"""The experiments as data: the runs behind each table and figure of the paper, as changes to one recipe.

A variant is a name and overrides of `recipes/world/reproduce.yaml`. Variants with the same settings in several
experiments share one cell, which is run once.

Every experiment is compared with two references: the base model as it is, and matched OPSD.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from vcsd.errors import ConfigError, did_you_mean
from vcsd.world.parameters import LONGEST_REASONED

if TYPE_CHECKING:
    from collections.abc import Mapping

ExperimentKind = Literal["base", "train", "decode", "vote", "pmi"]
"""What a cell does with a base model: measure it as it is, train it, decode by contrast, take the majority of several
answers, or measure its contrast."""

Where = Literal["smallest", "ordinary", "never black", "doses"]
"""Which bases an experiment starts from: only the smallest Qwen3-VL, as in the paper's ablations; every architecture
and size; bases that never saw a black picture; or the smallest Qwen3-VL at every share of captions that ignore their
picture. The first two are of the default world."""

NUM_QUESTIONS, NUM_PROMPTS = 512, 3072
"""Questions per suite, and training prompts, of every run that counts."""

QUICK = ("trainer.max_steps=2", "trainer.warmup_steps=1", "prompts_per_step=2", "rollout.num_per_prompt=2")
"""Changes to the recipe for a smoke test."""

ORDINARY = "ordinary"
"""The training prompts of all experiments of the paper: all kinds of questions about balanced scenes."""

NUM_QUESTIONS, NUM_PROMPTS = 512, 3072
"""Questions of a suite and training prompts of a run, as in all published results, whose names depend on both."""

QUICK = ("trainer.max_steps=2", "trainer.warmup_steps=1", "prompts_per_step=2", "rollout.num_per_prompt=2")
"""The changes of a smoke test to every recipe."""

CURVE_EVERY = 10
LONG_STEPS = 300
LONG_EVERY = 30


@dataclass(frozen=True)
class Variant:
    """One row of an experiment: its name, its kind, and its changes to the recipe.

    The questions are asked every `curve_every` steps; with None, only at the end. With `chosen_on_dev`, the student is
    that of the step that does best on questions of the split `dev`, not that of the last step. With `has_abilities`,
    the result also says what the model can do besides the exam (`vcsd.reproduce.abilities`). `prompts` names the set of
    training prompts.
    """

    name: str
    kind: ExperimentKind = "train"
    overrides: tuple[str, ...] = ()
    curve_every: int | None = None
    chosen_on_dev: bool = False
    has_abilities: bool = False
    prompts: str = ORDINARY


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, and the question that it answers."""

    name: str
    title: str
    shows: str
    variants: tuple[Variant, ...]
    on: Where = "smallest"
    question: str = ""


BASE = Variant("base", "base")
OPSD = Variant("OPSD", overrides=("method=opsd",))
VCSD = Variant("VCSD")
DECODING = Variant("contrast decoding", "decode")


def _sharpened(anchor: str) -> Variant:
    """The target is the teacher's own distribution to the power of `anchor`, without any control."""
    return Variant(f"sharpened {anchor}", overrides=("method=no_contrast", f"method.anchor={anchor}"))


SHARPENED = tuple(_sharpened(anchor) for anchor in ("1.5", "2", "3"))


def _long(name: str, *overrides: str) -> Variant:
    return Variant(name, overrides=(*overrides, f"trainer.max_steps={LONG_STEPS}"), curve_every=LONG_EVERY)


_IN_ORDER = (
    Experiment(
        "main",
        "Base, OPSD and VCSD",
        "Table 1 and Figure 6",
        (BASE, OPSD, VCSD),
        on="ordinary",
        question="Does VCSD improve its base, and is it above OPSD, on two families of models in two sizes?",
    ),
    Experiment(
        "alpha",
        "Contrastive strength",
        "Figure 3b",
        (
            Variant("alpha 0", overrides=("method=no_contrast",)),
            Variant("alpha 0.5", overrides=("method.alpha=0.5",)),
            Variant("alpha 1"),
            Variant("alpha 1.25", overrides=("method.alpha=1.25",)),
            Variant("alpha 1.5", overrides=("method.alpha=1.5",)),
            Variant("alpha 2", overrides=("method.alpha=2.0",)),
        ),
        question="How strong should the contrast be? Alpha is its weight: 0 means no contrast, and the paper uses 1.",
    ),
    Experiment(
        "support",
        "Plausibility support over long training",
        "Figure 3a",
        (_long("beta 0.1"), _long("beta 0", "method=no_support")),
        question="Does long training need the plausible support, the tokens that are likely enough given the image? "
        "With `beta 0.1`, VCSD's target is zero for all others; with `beta 0`, it allows every token.",
    ),
    Experiment(
        "divergence",
        "Distillation divergence",
        "Table 2",
        (
            Variant("forward KL"),
            Variant("JSD", overrides=("method.divergence=jensen_shannon",)),
            Variant("reverse KL", overrides=("method.divergence=reverse_kl",)),
        ),
        question="Which distance between the target and the student should training reduce: the forward KL divergence,"
        " as in the paper, the Jensen-Shannon divergence (JSD), or the reverse KL divergence?",
    ),
    Experiment(
        "control",
        "Control image",
        "Table 3",
        (
            Variant("noise", overrides=("method.contrast_view=noise",)),
            Variant("black"),
            Variant("blur", overrides=("method.contrast_view=blur",)),
            Variant("no image", overrides=("method.contrast_view=no_image",)),
        ),
        question="What should the teacher see in place of the image: noise, a black picture, the image blurred, or "
        "none?",
    ),
    Experiment(
        "anchor",
        "Original-image anchor",
        "Table 4 and Figure 3c",
        (Variant("no anchor", overrides=("method=no_anchor",)), Variant("anchor 1")),
        question="What does the anchor do? It keeps the teacher's own distribution, given the image, in the target; "
        "without it, the target is made of the contrast alone.",
    ),
    Experiment(
        "temperature",
        "Conventions of the paper and of the authors' code",
        "Section 4.1",
        (Variant("paper"), Variant("author_code", overrides=("method.preset=author_code",))),
        question="Does it matter whether training follows the paper or the authors' public code (`author_code`), which"
        " differ in temperature, loss factor, reduction and end tokens?",
    ),
    Experiment(
        "dynamics",
        "Training dynamics",
        "Figure 4",
        (replace(OPSD, curve_every=CURVE_EVERY), replace(VCSD, curve_every=CURVE_EVERY)),
        question="How do VCSD and OPSD rise and fall during training?",
    ),
    Experiment(
        "decoding",
        "Contrast at inference instead of training",
        "Section 2",
        (DECODING, VCSD),
        question="Does it need training? Contrast decoding answers from the contrast directly and trains nothing.",
    ),
    Experiment(
        "pmi",
        "The contrast as mutual information",
        "Equation 15",
        (Variant("contrast and PMI", "pmi"),),
        question="Does the contrast measure what it should, the mutual information between a token and the image?",
    ),
    Experiment(
        "black",
        "Bases that never saw a black picture",
        "Section 3.2, the control",
        (
            BASE,
            OPSD,
            Variant("VCSD with black"),
            Variant("VCSD with no image", overrides=("method.contrast_view=no_image",)),
            Variant("VCSD with noise", overrides=("method.contrast_view=noise",)),
        ),
        on="never black",
        question="Does a black picture work as the control for a model that saw none in pre-training?",
    ),
    Experiment(
        "sharpening",
        "What the contrast adds to sharpening",
        "not in the paper",
        (
            VCSD,
            *SHARPENED,
            Variant("another picture", overrides=("method.contrast_view=given",)),
            Variant("majority of 8", "vote"),
            DECODING,
            Variant("OPSD beta 0.1", overrides=("method=opsd", "method.beta=0.1")),
            replace(OPSD, name="OPSD, best dev step", chosen_on_dev=True),
        ),
        on="ordinary",
        question="Does training against the image contrast gain more than training that only sharpens the model's own "
        "distribution, than decoding with the contrast, than voting, and than OPSD with better settings?",
    ),
    Experiment(
        "dose",
        "From true captions to captions that ignore their picture",
        "not in the paper",
        (BASE, OPSD, VCSD, SHARPENED[1], DECODING),
        on="doses",
        question="How does the gain depend on the prior? A dose is the share of captions in pre-training that ignore "
        "their picture (`ignore_share`; 0.6 in the default world). At 0 all captions are true, and the method should "
        "have nothing to gain.",
    ),
)
EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType({experiment.name: experiment for experiment in _IN_ORDER})
"""All experiments by name, in the order of the paper."""

LAG = Experiment(
    "lag",
    "Rollouts drawn some steps ahead",
    "not in the paper",
    tuple(Variant(f"lag {lag}", overrides=(f"rollout.steps_ahead={lag}",) if lag else ()) for lag in (0, 1, 2, 4)),
)
MEASURED_BASE, MEASURED_OPSD, MEASURED_VCSD = (replace(variant, has_abilities=True) for variant in (BASE, OPSD, VCSD))

POWER = Experiment(
    "power",
    "Base, OPSD and VCSD on more bases",
    "Table 1",
    (MEASURED_BASE, MEASURED_OPSD, MEASURED_VCSD),
    on="ordinary",
)


def _failing(name: str, *overrides: str, **changes: Any) -> Variant:
    return replace(MEASURED_VCSD, name=name, overrides=overrides, **changes)


FAILURES = Experiment(
    "failures",
    "Where it fails, and what it keeps",
    "not in the paper",
    (
        MEASURED_BASE,
        MEASURED_OPSD,
        MEASURED_VCSD,
        _failing("VCSD, told prompts", prompts="told"),
        _failing("VCSD, color prompts", prompts="colors"),
        _failing("VCSD, usual prompts", prompts="usual"),
        _failing("VCSD, 300 steps", f"trainer.max_steps={LONG_STEPS}"),
        _failing("VCSD, 600 steps", f"trainer.max_steps={2 * LONG_STEPS}"),
        _failing("VCSD, long answers", f"rollout.max_new_tokens={LONGEST_REASONED}"),
    ),
)
"""Settings in which the method can fail. Some also need another base: docs/preregistration_failures.md."""

STUDIES: Mapping[str, Experiment] = MappingProxyType({study.name: study for study in (LAG, POWER, FAILURES)})
"""Experiments about this package and not about the paper. They run from a list of planned runs."""

ALL = "all"


def references_of(experiment: Experiment) -> tuple[Variant, ...]:
    """The variants that an experiment is compared with: base and OPSD, unless it has no scores."""
    return () if all(variant.kind == "pmi" for variant in experiment.variants) else (BASE, OPSD)


def chosen(name: str) -> tuple[Experiment, ...]:
    """The experiments of a name; `all` means all of them."""
    if name == ALL:
        return tuple(EXPERIMENTS.values())
    if name not in EXPERIMENTS:
        raise ConfigError([f"{name!r} is not an experiment. {did_you_mean(name, [*EXPERIMENTS, ALL])}"])
    return (EXPERIMENTS[name],)
