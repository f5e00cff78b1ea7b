"""The modules of one room, each imported when it is needed first. See docs/decisions/0033-rooms.md."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def module(room: str, name: str) -> ModuleType:
    """`name` inside the package `room`, which is the caller's own.

    What rooms import of each other stands in import statements, where the contract between rooms
    (`lint-imports`) counts it.
    """
    return import_module(f"{room}.{name}")


def package(room: str) -> ModuleType:
    """The package itself, whose `__path__` says where its modules lie."""
    return import_module(room)
