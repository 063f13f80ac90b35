"""Formats that people keep such data in: chat messages, base64, rows in memory, VLMEvalKit, ViRL39K."""
