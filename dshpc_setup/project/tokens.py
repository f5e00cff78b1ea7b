"""Tokens that outlive what asks for them: a file each, for the owner alone."""

from __future__ import annotations

import secrets
import shlex

from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.atomic import write_atomic
from dshpc_setup.project.folder import OWN, Project

DASHBOARD = f"{OWN}/dashboard.token"


def kept(project: Project, name: str) -> str:
    """That of the file; made at the first time. Raises DshpcError for one that is none."""
    path = project.folder / name
    try:
        found = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        found = secrets.token_urlsafe(32)
        write_atomic(path, f"{found}\n", mode=0o600, owner=project.owner)
    except UnicodeDecodeError:
        found = ""
    if len(found) < 16 or not found.isprintable():
        raise DshpcError(
            f"{path} holds no usable token.",
            "",
            (Fix("Remove it: a new one is made", f"rm {shlex.quote(str(path))}", step="do"),),
        )
    return found
