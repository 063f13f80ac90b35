"""Claims that are judged together by rules written before their runs: what decides, and how it is shown."""
