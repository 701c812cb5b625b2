"""Digests that stand for text in unique constraints.

MariaDB's default collation takes "Approve", "approve" and "approve " for one. So text that a caller chose is never
unique itself: its digest is, and look-ups go by the digest.
"""

from __future__ import annotations

import hashlib


def text_key(*parts: str) -> str:
    """SHA-256, in hex, of the exact text; several parts are joined by NUL, which no id contains.

    What is no text, as a host may look for, gets a digest that nothing stored has.
    """
    try:
        text = "\0".join(parts)
    except TypeError:
        text = "\0no text\0"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
