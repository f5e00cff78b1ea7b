"""A run whose container is started by the built-in engine: its image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dshpc_setup.builtin_client import containers, images
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.reporter import Reporter


def load_image(machine: Machine, tag: str, file: Path, reporter: Reporter) -> None:
    """The image of a file under that name; DshpcError."""
    reporter.progress(f"image: unpacking {file.name}")
    store = Store(machine.env)
    try:
        with store.changing():
            images.load(machine, store, file, containers.ids_of(machine), tag)
    except DshpcError as error:
        raise replace(error, details=f"{file}: {error.details}".rstrip(": ")) from None
    except TimeoutError as error:
        raise DshpcError(
            "Another run changes the built-in engine's images.",
            str(error),
            ("Wait for it, then run this again.",),
            Exit.INCOMPLETE,
        ) from None
