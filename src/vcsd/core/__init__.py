"""The paper's equations in plain torch: the definition that every faster path is tested against.

Shape legend, used as suffixes throughout: N positions (response tokens), V vocabulary, M responses.
Space legend, used as prefixes: `logits_`, `log_p_` (normalised log-probabilities), `log_q` (the target's), `p_`.
Every function reduces over the last dimension, computes in float32 or wider, and returns finite numbers for inputs that
describe distributions. A NaN among the logits of a position makes its probabilities and its divergence NaN; nothing
here hides it.
"""

from vcsd.core.buckets import importance_weight, top_and_tail
from vcsd.core.contrast import contrast, plausible_support
from vcsd.core.divergence import forward_kl, jensen_shannon, reverse_kl
from vcsd.core.probability import LOG_FLOOR, log_probs
from vcsd.core.reduce import response_mean, response_weights, token_mean, token_weights
from vcsd.core.target import shape_target

__all__ = [
    "LOG_FLOOR",
    "contrast",
    "forward_kl",
    "importance_weight",
    "jensen_shannon",
    "log_probs",
    "plausible_support",
    "response_mean",
    "response_weights",
    "reverse_kl",
    "shape_target",
    "token_mean",
    "token_weights",
    "top_and_tail",
]
