"""Emoji scenes with true but skewed captions, and a small real language model that learns to see from them."""
