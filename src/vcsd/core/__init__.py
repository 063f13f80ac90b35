"""The paper's equations in plain torch: the definition that every faster path is tested against.

Shape legend, used as suffixes throughout: N positions (response tokens), V vocabulary, M responses.
Space legend, used as prefixes: `logits_`, `log_p_` (normalised log-probabilities), `log_q` (the target's), `p_`.
Every function reduces over the last dimension, works in at least float32, and returns floating-point numbers that are
finite wherever its inputs describe distributions. A NaN among the logits of a position makes all its probabilities NaN,
and so its divergence: nothing here hides it.
"""

from vcsd.core.contrast import contrast, plausible_support
from vcsd.core.divergence import forward_kl, jensen_shannon, reverse_kl
from vcsd.core.probability import LOG_FLOOR, log_probs
from vcsd.core.reduce import response_mean, response_weights, token_mean, token_weights
from vcsd.core.target import shape_target

__all__ = [
    "LOG_FLOOR",
    "contrast",
    "forward_kl",
    "jensen_shannon",
    "log_probs",
    "plausible_support",
    "response_mean",
    "response_weights",
    "reverse_kl",
    "shape_target",
    "token_mean",
    "token_weights",
]
