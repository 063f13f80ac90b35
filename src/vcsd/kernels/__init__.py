"""Triton kernels for the operators of a model, each with its derivation."""
