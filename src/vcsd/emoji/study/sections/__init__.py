"""The sections of the page about a language study."""
