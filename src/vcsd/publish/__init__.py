"""Publish a run: exports with model cards, uploads to the hub, and capsules that others can replay."""
