"""Folders with the base image's files and what a script adds to them."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from dshpc_setup.engine.site import APT_FILE, SiteFiles
from dshpc_setup.image.base import BaseImage

MAKE_S = 600.0
COPY_S = 400.0

# apt for a root that is removed again. Snapshots are dated back: the date of a suite is not looked at.
# No daemon starts.
APT = r"""
if [ -s "$1" ]; then export APT_CONFIG="$1"; fi
suite=$2; shift 2
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
# The address of the base image's packages; its components are the arguments
name_suite() {
    uri=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources | head -n 1)
    [ -n "$uri" ] || { echo "the base image names no package source" >&2; exit 1; }
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\nSigned-By: %s\n' \
        "$uri" "$suite" "$*" /usr/share/keyrings/debian-archive-keyring.gpg
}
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Check-Valid-Until=false -o Dpkg::Options::=--force-unsafe-io "$@"
}
"""


@contextlib.contextmanager
def base_root(
    name: str,
    script: str,
    arguments: tuple[str, ...],
    base: BaseImage,
    site: SiteFiles,
    folder: Path,
    *,
    volumes: Mapping[str, str] | None = None,
) -> Iterator[Path]:
    """Such a folder, gone at the end. The script comes behind `APT`, and its arguments are apt's file of
    this site, then those given: the suite is the first of them."""
    name = f"dshpc-test-{name}-{secrets.token_hex(4)}"
    settings, root = folder / f"{name}.site", folder / name
    settings.mkdir(parents=True)
    root.mkdir()
    (settings / "apt.conf").write_text(site.apt_conf)
    (settings / "ca.pem").write_text(site.ca_pem)
    lent = {str(settings): str(Path(APT_FILE).parent), **(volumes or {})}
    argv = [
        *("docker", "run", "--name", name),
        *(item for key in site.proxy_env() for item in ("--env", key)),
        *("--network", "host" if site.uses_loopback() else "bridge"),
        *(item for here, there in lent.items() for item in ("--volume", f"{here}:{there}:ro")),
        *(base.ref, "sh", "-euc", APT + script, "sh", APT_FILE, *arguments),
    ]
    try:
        run(argv, MAKE_S, {**os.environ, **site.proxy_env()})
        _export(name, root)
        yield root
    finally:
        subprocess.run(
            ["docker", "rm", "--force", name], capture_output=True, timeout=180, check=False
        )
        gone = ["rm", "-rf", "--one-file-system", str(root), str(settings)]
        subprocess.run(gone, timeout=COPY_S, check=True)


def run(argv: list[str], deadline_s: float, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=deadline_s, env=env, check=False
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}\n{done.stderr}"
    return done.stdout


def _export(container: str, root: Path) -> None:
    with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
        subprocess.run(
            ["tar", "-x", "--numeric-owner", "-C", str(root)],
            stdin=export.stdout,
            timeout=COPY_S,
            check=True,
        )
    assert export.returncode == 0
