"""Models: the processor, families, packed rows that share prefixes, and scoring."""
