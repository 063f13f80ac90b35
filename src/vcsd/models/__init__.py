"""Models: the processor, family adapters, packed rows that share prefixes, and scoring."""
