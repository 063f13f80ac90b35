"""Rollouts: answers sampled from the student, with one engine per file."""
