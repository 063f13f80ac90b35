"""The paper's claims and numbers, compared with ours.

A claim is a statement of the paper, the number behind it, and a rule that reads our results. The rule gives the
verdict, not the reader. Rules compare directions, not sizes: there is no reason why a tiny model in the offline world
should gain as many points.
"""

from __future__ import annotations

from dataclasses import dataclass

from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD
from vcsd.reproduce.pages import judges
from vcsd.reproduce.pages.judges import ClaimRule, variant


@dataclass(frozen=True)
class Claim:
    """A statement of the paper. `judge` describes our result and gives the verdict.

    `smallest` is the smallest difference behind the paper's claim, which runs must be able to show; None without one.
    `threshold` is what a measure must exceed, where the rule reads a value and not a difference.
    """

    experiment: str
    says: str
    number: str
    judge: ClaimRule
    smallest: float | None = None
    unit: str = "points"
    threshold: float | None = None


CLAIMS = (
    Claim(
        "main",
        "VCSD improves every model over its base.",
        "+1.86 to +4.77 points",
        judges.above_everywhere(BASE, VCSD),
        1.86,
    ),
    Claim(
        "main",
        "VCSD improves over the base, all models together.",
        "+1.86 to +4.77 points",
        judges.above_together(BASE, VCSD),
        1.86,
    ),
    Claim(
        "main",
        "VCSD is above matched OPSD on every model.",
        "+1.76 to +5.33 points",
        judges.above_everywhere(OPSD, VCSD),
        1.76,
    ),
    Claim(
        "main",
        "VCSD is above matched OPSD, all models together.",
        "+1.76 to +5.33 points",
        judges.above_together(OPSD, VCSD),
        1.76,
    ),
    Claim("main", "OPSD gives no consistent gain on Qwen3.5.", "-2.43, -0.02, -0.24 points", judges.opsd_on_qwen3_5),
    Claim(
        "main",
        "On the smallest Qwen3-VL every benchmark is above OPSD.",
        "+1.00 to +4.32 points",
        judges.every_suite,
        1.00,
    ),
    Claim(
        "main",
        "The contrast grows on visual words rather than everywhere (first rule: in all answers).",
        "Figure 6, no number",
        judges.profile_of_all,
        unit="nats",
    ),
    Claim(
        "main",
        "The contrast grows on visual words rather than everywhere (second rule, made after a pilot seed: in right "
        "answers).",
        "Figure 6, no number",
        judges.profile,
        unit="nats",
    ),
    Claim(
        "support",
        "Without the plausible support, accuracy falls over long training.",
        "Figure 3a, no number",
        judges.support,
    ),
    Claim(
        "support",
        "With the plausible support, accuracy stays stable (step 300 against step 90).",
        "Figure 3a, no number",
        judges.holds,
    ),
    Claim("support", "Early in training, the two are alike.", "Figure 3a, no number", judges.alike_early),
    Claim(
        "alpha",
        "Without contrast (alpha 0), accuracy is lower than with alpha 1.",
        "+2.33 points",
        judges.above_on_first(variant("alpha", "alpha 0"), variant("alpha", "alpha 1")),
        2.33,
    ),
    Claim(
        "alpha",
        "Accuracy peaks around alpha 1.",
        "Figure 3b",
        judges.peak(*(variant("alpha", f"alpha {value}") for value in ("0", "1", "2", "0.5", "1.25", "1.5"))),
    ),
    Claim(
        "alpha",
        "A weaker contrast (alpha 0.5) is worse than alpha 1.",
        "Figure 3b, no number",
        judges.above_on_first(variant("alpha", "alpha 0.5"), variant("alpha", "alpha 1")),
    ),
    Claim(
        "alpha",
        "Accuracy varies by less than a point for alpha from 1 to 1.5.",
        "< 1 point",
        judges.alike(*(variant("alpha", f"alpha {value}") for value in ("1", "1.25", "1.5"))),
    ),
    Claim(
        "alpha",
        "Too strong a contrast (alpha 2) is worse than alpha 1.",
        "Figure 3b, no number",
        judges.above_on_first(variant("alpha", "alpha 2"), variant("alpha", "alpha 1")),
    ),
    Claim(
        "alpha",
        "At alpha 2, accuracy is about as low as without contrast (alpha 0).",
        "Figure 3b, no number",
        judges.alike(variant("alpha", "alpha 0"), variant("alpha", "alpha 2")),
    ),
    Claim(
        "divergence",
        "Forward KL is above reverse KL.",
        "+2.27 points",
        judges.above_on_first(variant("divergence", "reverse KL"), variant("divergence", "forward KL"), 2.27),
        2.27,
    ),
    Claim(
        "divergence",
        "Forward KL is above the Jensen-Shannon divergence.",
        "+0.79 points",
        judges.above_on_first(variant("divergence", "JSD"), variant("divergence", "forward KL"), 0.79),
        0.79,
    ),
    Claim("divergence", "Forward KL is first on six of the seven benchmarks.", "6 of 7", judges.first_in_most_suites),
    Claim(
        "control",
        "The four controls give similar accuracy.",
        "66.24 to 67.14",
        judges.alike(*EXPERIMENTS["control"].variants),
    ),
    Claim(
        "anchor",
        "Accuracy is about the same with and without the anchor.",
        "67.04 against 66.78",
        judges.alike(*EXPERIMENTS["anchor"].variants),
    ),
    Claim(
        "anchor", "The anchor reduces language drift during training.", "Figure 3c, no number", judges.drift, unit="%"
    ),
    Claim(
        "dynamics",
        "VCSD stays above OPSD at every evaluated step.",
        "Figure 4, no number",
        judges.ahead_at_every_step(),
    ),
    Claim("dynamics", "VCSD degrades less than OPSD late in training.", "Figure 4, no number", judges.falls_less),
    Claim(
        "dynamics",
        "After the first evaluated step, VCSD is ahead on MMStar (here: mixed).",
        "Figure 4, no number",
        judges.ahead_at_every_step("mixed", skip_first=True),
    ),
    Claim(
        "dynamics",
        "VCSD is ahead on MathVista (here: arithmetic) throughout training.",
        "Figure 4, no number",
        judges.ahead_at_every_step("arithmetic"),
    ),
    Claim(
        "decoding",
        "Contrast helps at inference; once distilled, it costs nothing at inference.",
        "no number; cited from VCD",
        judges.decoding,
    ),
    Claim(
        "pmi",
        "The contrast under a black image approximates mutual information.",
        "Eq. 15, no number",
        judges.pmi,
        unit="r",
        threshold=judges.STANDS_FOR,
    ),
    Claim(
        "temperature",
        "The paper does not compare its T = 2 with the conventions of the authors' public code (T = 1, a factor of 4, "
        "their reduction and end tokens).",
        "no number",
        judges.finding(*EXPERIMENTS["temperature"].variants),
    ),
    Claim(
        "black",
        "The paper does not say whether a black control works on a model that never saw a black picture.",
        "no number",
        judges.never_black,
    ),
)
"""Every claim of the paper's experiments, in its order."""
