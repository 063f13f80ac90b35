"""The description of the distributions: README.md without pictures and without links into the repository.

A package index shows the description alone. Relative links would lead nowhere there, so their text is kept and the link
dropped; links to the web stay.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def standalone(text: str) -> str:
    """Return Markdown that can be read outside the repository.

    >>> standalone("![a picture](docs/a.png)\\n\\nSee [the guide](docs/a.md) and [here](https://example.org).")
    'See the guide and [here](https://example.org).'
    """
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n+", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?://)[^)]*\)", r"\1", text)


class Description(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description to the metadata of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": standalone(text)}
