"""The machine that packages are locked for: the image's Python on Debian trixie, not the host."""

from __future__ import annotations

PYTHON = "3.13"  # of Debian trixie
FULL = "3.13.5"
GLIBC = "2.41"
_GLIBC = "2_40"  # the newest that uv knows
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"  # where Debian's Python looks
INTERPRETER = "/usr/bin/python3"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Debian's name -> that of wheels


def options(architecture: str, python: str = FULL) -> list[str]:
    """uv's options that choose wheels for that machine alone ("amd64" or "arm64")."""
    return [
        "--only-binary=:all:",
        f"--python-version={python}",
        f"--python-platform={MACHINES[architecture]}-manylinux_{_GLIBC}",
    ]
