"""The demonstration behind `vcsd demo`."""
