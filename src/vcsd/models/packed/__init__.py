"""Packed rows: which prompts and responses share a row, and where each segment lies in it."""
