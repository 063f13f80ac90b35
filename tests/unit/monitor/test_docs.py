"""docs/monitoring.md matches the code."""

from pathlib import Path

import pytest

from vcsd.monitor import SIGNALS, guard, metrics, response_text, training_bar, watch

PAGE = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: f"{signal.metric} {signal.compare}")
def test_the_page_has_every_threshold(signal):
    stop = "-" if signal.stop is None else f"{signal.stop:g}"
    unit = "tokens" if signal.metric == "length" else "nats"
    floor = f", from {signal.least:g} {unit} on" if signal.least > 0 else ""
    assert f"| `{signal.metric}`{floor} | {signal.compare} | {signal.warn:g} | {stop} |" in PAGE


def test_the_page_has_every_metric_and_every_number_of_the_bar():
    per_rollout = ("length", "truncated", "repetition", "language_drift")
    assert all(f"| `{name}` |" in PAGE for name in (*metrics.PER_TOKEN, *per_rollout))
    assert all(f"`{label}`" in PAGE for label in training_bar.SIX)


def test_the_page_has_the_constants():
    for words in (
        f"`REPEATED_SHARE` {response_text.REPEATED_SHARE}",
        f"phrases of {response_text.NGRAM} tokens (`NGRAM`) in its last {response_text.TAIL_TOKENS} (`TAIL_TOKENS`)",
        f"fewer than {response_text.MIN_PHRASES} phrases (`MIN_PHRASES`)",
        f"first {guard.BASELINE_STEPS} steps (`BASELINE_STEPS`)",
        f"last {guard.WINDOW} (`WINDOW`)",
        f"for {guard.PATIENCE} steps in a row (`PATIENCE`)",
    ):
        assert words in PROSE
    assert (watch.SAMPLES_PER_STEP, watch.SAMPLES_EVERY, training_bar.LOG_EVERY) == (4, 10, 10)
