"""The Idefics family: transformers' own code, with prompts computed once."""
