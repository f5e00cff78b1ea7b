"""The archive's place: never over something else without a question, and whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from dshpc_setup.bundle.archive import pack
from dshpc_setup.errors import usage_error
from dshpc_setup.files.atomic import write_atomic
from dshpc_setup.terminal.reporter import Reporter

SUFFIXES = (".tar.gz", ".tgz")
_MODE = 0o600  # whoever may read it is for the user to say


def need_place(path: Path, reporter: Reporter) -> None:
    """Raises DshpcError where a report cannot be written there, or is not to be.

    To be called before the machine is asked anything, which takes seconds.
    """
    if not path.name.endswith(SUFFIXES):
        raise usage_error(
            f"--bundle {path}: the report is a compressed archive.",
            "",
            f"Give it a name that ends in .tar.gz: --bundle {path.name or 'report'}.tar.gz",
        )
    if not path.parent.is_dir():
        raise usage_error(f"There is no folder {path.parent}.", "", "Make it first.")
    if not os.access(path.parent, os.W_OK):
        raise usage_error(
            f"You may not write into {path.parent}.", "", "Name a file in a folder of your own."
        )
    if path.is_dir():
        raise usage_error(f"{path} is a folder.", "", "Name a file: --bundle report.tar.gz")
    if os.path.lexists(path) and not reporter.ask(f"{path} exists. Replace it?"):
        raise usage_error(
            f"{path} exists.",
            "It was left as it is.",
            "Name another file, or give --yes to replace it.",
        )


def write(path: Path, files: Mapping[str, str], owner: tuple[int, int] | None = None) -> int:
    """Write the archive in one step, readable by its owner alone; its size in bytes."""
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    data = pack(f"dshpc-report-{day}", files)
    # Bytes as the text that is written as just these bytes
    write_atomic(path, data.decode("utf-8", "surrogateescape"), _MODE, owner)
    return len(data)
