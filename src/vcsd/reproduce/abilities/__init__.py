"""What a model can do besides the exam, before and after training."""
