"""The command line."""

from vcsd.cli.app import main

__all__ = ["main"]
