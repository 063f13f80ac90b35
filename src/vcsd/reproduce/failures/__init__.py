"""Settings in which the method can fail, and more bases: what their runs say by rules that were written before them."""
