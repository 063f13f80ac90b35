"""Reads the final answer from a response and decides whether it is right."""

from vcsd.evaluation.reading.final_answer import READER, read_answer

__all__ = ["READER", "read_answer"]
