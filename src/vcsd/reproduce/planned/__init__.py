"""Runs that were planned in a file before they were made: which bases, variants and seeds, and in which order."""
