"""From marked answers to a scorecard, its intervals and its pages."""
