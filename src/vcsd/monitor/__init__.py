"""Monitors: what a run does, step by step, and when it goes wrong."""
