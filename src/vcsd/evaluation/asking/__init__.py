"""Asking a model the questions, here or on a server."""
