"""The toolkits that this container is lent, as the task prolog looks them up for each task."""

from __future__ import annotations

from collections.abc import Mapping

from dshpc_setup.files.storage import replace_text
from dshpc_setup.settings import lent
from dshpc_setup.slurm.paths import Paths


def write(paths: Paths, env: Mapping[str, str]) -> None:
    """A line "KIND PLACE" for each; none where nothing is lent."""
    text = "".join(f"{kind} {place}\n" for kind, place in lent.told(env))
    replace_text(f"{paths.run}/toolkits", text, sync=False)
