"""Evaluation: questions in, predictions beside them, a scorecard out; one code for the seven benchmarks and the world.

Question -> (model or server) -> Prediction -> Verdict -> Scorecard
"""
