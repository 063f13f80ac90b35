"""vLLM with weights that do not change, for evaluation: in this process or on a server, plain or contrast decoding."""
