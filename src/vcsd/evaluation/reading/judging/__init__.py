"""A language model that reads what the rules cannot: its prompts, its presets, and how its replies are read."""
