"""Formats of prompts, images and tables: chat messages, base64, rows in memory, VLMEvalKit, ViRL39K."""
