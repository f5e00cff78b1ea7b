"""Root file systems for the engines that this machine has not, made of Debian's packages."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.image.base import BaseImage
from tests.integration.base_root import base_root

# The suite beside the base image's own comes from the same archive as that. The engine is not started.
_SCRIPT = """
[ "$suite" = trixie ] || name_suite main >"/etc/apt/sources.list.d/$suite.sources"
apt update
apt install --yes --no-install-recommends --target-release "$suite" "$@"
"""


def root_with(
    packages: tuple[str, ...], suite: str, base: BaseImage, site: SiteFiles, folder: Path
) -> AbstractContextManager[Path]:
    """A folder with the base image's files and the packages of that suite; gone at the end."""
    return base_root("root", _SCRIPT, (suite, *packages), base, site, folder)
