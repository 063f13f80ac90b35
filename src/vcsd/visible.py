"""Text from outside, such as answers, prompts and paths, made safe to show.

A terminal obeys escape sequences, and browsers and terminals obey characters that reorder or hide text. Such characters
are written out instead, as Python would: ESC becomes the four characters `\\x1b`.
"""

import json
import re

_OBEYED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # control characters, except tab and newline
    "|\r(?!\n)"  # overwrites the line
    "|[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]"
    "|[\ud800-\udfff]"  # half a surrogate pair cannot be encoded
    "|[\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
"""The joiners U+200C and U+200D are not in it: Persian words and emoji need them."""


def visible(text: str) -> str:
    r"""Write out characters that a terminal or a browser would obey instead of showing them.

    >>> visible("a\x1b[31mb\u202ec\n")
    'a\\x1b[31mb\\u202ec\n'
    """
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def visible_json(text: str) -> str:
    r"""Write out the same characters in JSON text, so that it still means the same.

    >>> visible_json('{"a": "\u202e"}')
    '{"a": "\\u202e"}'
    """
    return _OBEYED.sub(lambda match: json.dumps(match[0])[1:-1], text)
