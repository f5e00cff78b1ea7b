"""Words and questions that the checks of the project's files share."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from dshpc_setup.apply.owned import OWNABLE
from dshpc_setup.diagnose.model import CheckInput
from dshpc_setup.observed.model import ProjectFile

KEPT_AS: Mapping[str, str] = {"custom": "marked as your own", "edited": "edited"}


def there(known: CheckInput) -> str:
    """Where a command with a relative path is to be given."""
    return f"in {known.observed.project or 'the project folder'}"


def at(known: CheckInput, path: str) -> str:
    """Where a file of the project lies, to be pasted in any folder."""
    return shlex.quote(f"{known.observed.project}/{path}" if known.observed.project else path)


def written_files(known: CheckInput) -> list[ProjectFile]:
    """Those of the looked-at files that dshpc writes."""
    return [item for item in known.observed.files if item.path in OWNABLE]


def stale_files(known: CheckInput) -> list[ProjectFile]:
    """Of our own files only: what somebody edited is his, and is kept."""
    return [item for item in written_files(known) if item.owner == "ours" and item.stale]
