"""Several processes that train one model: what they agree on, how work is split, how weights are sharded."""
