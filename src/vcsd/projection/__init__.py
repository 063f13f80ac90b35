"""What a run needs on a machine, from shapes alone: memory, time and disk."""
