"""What texts have in common, whatever the kind of answer: statements, corrections, refusals, repeated questions."""
