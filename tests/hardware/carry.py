"""What the acceptance needs on a machine without a network: `python -m tests.hardware.carry FOLDER`.

FOLDER gets the image of a cluster that runs here, the locked Python packages but uv (two thirds of them),
and `go`, which runs the acceptance there with these. It ends with an error where all that is more than
64 MiB, which is what some lent machines take.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dshpc_setup.image import compressing
from scripts.environment import locked_lines
from tests.hardware.acceptance import CHECKOUT

MOST_MIB = 64
_PRESET = 6
IMAGE, WHEELS = "cluster.tar.xz", "wheels"
_GO = f"""#!/bin/sh
# The acceptance with what lies beside this file: go RESULT [ARGUMENT...], from a checkout
here=$(cd "$(dirname "$0")" && pwd)
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$here/{WHEELS}"
./dshpc --version && exec python3 -m tests.hardware "$@" --engine builtin --image-file "$here/{IMAGE}"
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.carry", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a new folder")
    parser.add_argument("--dir", default=".", metavar="PROJECT", help="of the cluster that runs")
    parser.add_argument("--python", default=None, metavar="3.12", help="the other machine's")
    asked = parser.parse_args()
    folder: Path = asked.folder.resolve()
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as made:
        plain = Path(made) / "cluster.tar"
        save = [str(CHECKOUT / "dshpc"), "image", "save", str(plain), "--dir", asked.dir]
        subprocess.run(save, check=True)
        # Smaller than the command makes it, which is to be quick
        compressing.compress(plain, folder / IMAGE, ".tar.xz", platform.machine(), _PRESET)
    download(folder / WHEELS, asked.python)
    (folder / "go").write_text(_GO)
    (folder / "go").chmod(0o755)
    mib = size_bytes(folder) / (1 << 20)
    print(f"{folder}: {mib:.1f} MiB of {MOST_MIB}")
    return int(mib > MOST_MIB)


def download(wheels: Path, version: str | None) -> None:
    """The locked packages but uv, for this machine's processor and that version of Python."""
    lock = (CHECKOUT / "requirements.lock").read_text()
    python = (
        sys.executable if _has_pip(sys.executable) else shutil.which("python3", path="/usr/bin")
    )
    argv = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    argv += ["--python-version", version] if version else []
    with tempfile.NamedTemporaryFile("w", suffix=".lock") as file:
        file.write(lock.replace(locked_lines(lock, "uv"), ""))
        file.flush()
        subprocess.run([*argv, "--requirement", file.name, "--dest", str(wheels)], check=True)


def _has_pip(python: str) -> bool:
    argv = [python, "-c", "import pip"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main())
