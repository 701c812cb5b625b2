"""Digests that stand for text in unique constraints.

MariaDB's default collation takes "Approve", "approve" and "approve " for one. So text that a caller chose is never
unique itself: its digest is, and look-ups go by the digest.
"""

from __future__ import annotations

import hashlib


def text_key(*parts: str) -> str:
    """SHA-256, in hex, of the exact text; several parts are joined by NUL, which no id contains."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
