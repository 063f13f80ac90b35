"""Messages as a model reads them: rendered by the chat template, with text from data kept as text."""
