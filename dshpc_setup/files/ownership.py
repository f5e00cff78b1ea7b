"""Who owns a file that we render: pure, the same on the host and in the container."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

Owner = Literal["missing", "ours", "custom", "edited"]

BOM = "\ufeff"  # what editors on Windows put before the first line

_MARKED = re.compile(r"^[ \t]*#[ \t]*USER_CUSTOMIZED[ \t]*=[ \t]*true[ \t]*\r?$", re.M | re.I)


def is_marked(text: str) -> bool:
    """Whether a comment line says `# USER_CUSTOMIZED=true`."""
    return _MARKED.search(text.removeprefix(BOM)) is not None


def digest(text: str) -> str:
    """SHA-256 of the text as written (UTF-8)."""
    return digest_of(text.encode("utf-8", "surrogateescape"))


def digest_of(content: bytes) -> str:
    """The same of what lies in a file."""
    return hashlib.sha256(content).hexdigest()


def classify(text: str | None, recorded_sha256: str | None) -> Owner:
    """`custom`: marked by the user; `edited`: not what we last wrote (or never written by us)."""
    if text is None:
        return "missing"
    if is_marked(text):
        return "custom"
    return "ours" if recorded_sha256 == digest(text) else "edited"
