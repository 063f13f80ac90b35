"""What is done to the weights of a model before it is trained."""
