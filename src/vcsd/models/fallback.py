"""Any other image-text-to-text model: prompts repeated per response, in a padded batch.

Exact as well, but the prompt and its image are computed once per response instead of once.
"""

from vcsd.models.family import Family


class Fallback(Family):
    """A family without an adapter."""

    name = "fallback"


FAMILY = Fallback()
