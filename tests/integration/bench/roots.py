"""Root file systems for the engines that this machine has not, made of Debian's packages."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dshpc_setup.engine.site import APT_FILE, SiteFiles
from dshpc_setup.image.base import BaseImage

_MAKE_S = 600.0
_COPY_S = 400.0
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# The suite beside the base image's own comes from the same archive as that: snapshots are dated back,
# so the date of the suite is not looked at. The engine itself is not started.
_SCRIPT = """
if [ -s "$1" ]; then export APT_CONFIG="$1"; fi
suite=$2; shift 2
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
if [ "$suite" != trixie ]; then
    uri=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources | head -n 1)
    [ -n "$uri" ] || { echo "the base image names no package source" >&2; exit 1; }
    printf 'Types: deb\\nURIs: %s\\nSuites: %s\\nComponents: main\\nSigned-By: %s\\n' \
        "$uri" "$suite" @KEYRING@ > "/etc/apt/sources.list.d/$suite.sources"
fi
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Check-Valid-Until=false -o Dpkg::Options::=--force-unsafe-io "$@"
}
apt update
apt install --yes --no-install-recommends --target-release "$suite" "$@"
""".replace("@KEYRING@", _KEYRING)


@contextlib.contextmanager
def root_with(
    packages: tuple[str, ...], suite: str, base: BaseImage, site: SiteFiles, folder: Path
) -> Iterator[Path]:
    """A folder with the base image's files and the packages of that suite; gone at the end."""
    name = f"dshpc-test-root-{secrets.token_hex(4)}"
    settings = folder / f"{name}.site"
    settings.mkdir(parents=True)
    (settings / "apt.conf").write_text(site.apt_conf)
    (settings / "ca.pem").write_text(site.ca_pem)
    root = folder / name
    root.mkdir()
    environment = [item for key in site.proxy_env() for item in ("--env", key)]
    try:
        _docker(
            "run", "--name", name, *environment,
            "--network", "host" if site.uses_loopback() else "bridge",
            "--volume", f"{settings}:{Path(APT_FILE).parent}:ro",
            base.ref, "sh", "-euc", _SCRIPT, "sh", APT_FILE, suite, *packages,
            env={**os.environ, **site.proxy_env()},
        )  # fmt: skip
        _export(name, root)
        yield root
    finally:
        subprocess.run(
            ["docker", "rm", "--force", name], capture_output=True, timeout=180, check=False
        )
        gone = ["rm", "-rf", "--one-file-system", str(root), str(settings)]
        subprocess.run(gone, timeout=_COPY_S, check=True)


def _docker(*arguments: str, env: dict[str, str]) -> None:
    done = subprocess.run(
        ["docker", *arguments],
        capture_output=True,
        text=True,
        timeout=_MAKE_S,
        env=env,
        check=False,
    )
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stdout}\n{done.stderr}"


def _export(container: str, root: Path) -> None:
    with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
        subprocess.run(
            ["tar", "-x", "--numeric-owner", "-C", str(root)],
            stdin=export.stdout,
            timeout=_COPY_S,
            check=True,
        )
    assert export.returncode == 0
