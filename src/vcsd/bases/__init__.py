"""The world's tiny base models: their tokenizer, pre-training, measurement and cards."""
