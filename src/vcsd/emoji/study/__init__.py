"""The experiment on emoji bases: planned runs, what the contrast does to deciding words, and rules that settle."""
