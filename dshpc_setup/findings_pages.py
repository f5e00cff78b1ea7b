"""The pages of the findings: docs/findings/ID.md, in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

from dshpc_setup import resources
from dshpc_setup.errors import DshpcError


def folder() -> Path:
    """Where they lie."""
    return resources.share() / "docs" / "findings"


def page(identity: str) -> str:
    """The page of one check, in Markdown; raises DshpcError where it cannot be read."""
    path = folder() / f"{identity}.md"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DshpcError(
            f"The page of {identity} cannot be read.",
            str(error),
            (
                "This installation is not complete: install dshpc-setup anew.",
                f"What the check says of this machine: dshpc doctor -v --only {identity}",
            ),
        ) from None
