"""Evaluation of models on the seven benchmarks and on the offline world, with the same code.

Question -> (model or server) -> Prediction -> Verdict -> Scorecard
"""
