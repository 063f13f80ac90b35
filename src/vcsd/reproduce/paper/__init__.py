"""The paper's tables with its own models."""
