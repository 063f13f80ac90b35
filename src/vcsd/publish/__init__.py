"""Models that leave this machine: the model card of an export, and its upload to the hub."""
