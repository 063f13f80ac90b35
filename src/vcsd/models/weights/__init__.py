"""Changes to a model's weights before training."""
