"""Rollouts with vLLM, from weights that are proven to be the student's."""
