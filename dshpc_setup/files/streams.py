"""Streams of bytes."""

from __future__ import annotations

import os


def write_all(handle: int, block: bytes) -> None:
    """All of it, where one write takes a part; OSError as of os.write."""
    view = memoryview(block)
    while view:
        view = view[os.write(handle, view) :]
