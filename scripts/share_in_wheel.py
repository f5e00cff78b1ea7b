"""Build hook: what lies at the top of the checkout goes into the wheel as `dshpc_setup/_share/`.

Not by `force-include` in pyproject.toml: an editable installation would get a copy too, which goes
stale with the first edit of a template.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = (
    "templates",
    "container",
    "methods",
    "docker-compose.yml.j2",
    "docs/findings",
    "docs/schemas",
    # What `dshpc node add` lays out on another machine as a checkout
    "configure-environment",
    "dshpc",
    "pyproject.toml",
    "requirements.lock",
    "README.md",
    "LICENSE",
    "scripts/launch.sh",
    "scripts/others.sh",
    "scripts/packages.sh",
    "scripts/environment.py",
    "scripts/share_in_wheel.py",
)
FETCHED = "browser"  # by scripts/browser_files.py, before a release


class ShareHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds SHARED to a wheel that is to be copied somewhere; `dshpc_setup.resources` finds it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """`version` is hatchling's word for the kind of wheel: "standard" or "editable"."""
        if version == "editable":
            return
        for name in SHARED:
            source = Path(self.root) / name
            build_data["force_include"][str(source)] = f"dshpc_setup/_share/{name}"
        # where man looks beside the folder of the commands
        build_data["shared_data"][str(Path(self.root) / "docs/man")] = "share/man/man1"
        if (Path(self.root) / FETCHED).is_dir():
            build_data["force_include"][FETCHED] = f"dshpc_setup/_share/{FETCHED}"
