"""The words that ask the engine for one of its objects: asked early by those who load nothing else."""

from __future__ import annotations


def argv(kind: str, name: str) -> list[str]:
    """Of a container, image or volume, by its name or id."""
    return ["docker", "inspect", "--type", kind, "--", name]
