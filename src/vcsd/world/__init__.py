"""The world: pictures of coloured shapes, questions about them, and tiny Qwen models that see but trust their prior.

parameters   every number that shapes the outcome, in one place
scenes       what is in a picture;   render   the picture;   questions   what can be asked, and the right answer
suites       seven sets of test questions;   examples   prompts to train on
tokenizer    words, special tokens and chat template;   models   the tiny models;   pretrain   how they came to be
"""
