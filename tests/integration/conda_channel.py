"""A channel of conda's made by hand: a Python that is the image's own, a package of pure Python with a
program, and one that has a script for whoever activates the environment."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

PLACEHOLDER = f"/opt/{'placehold_' * 20}"
_SUBDIR = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
_PYTHON = f"""#!/bin/sh
PYTHONPATH={PLACEHOLDER}/lib/python3.13/site-packages exec /usr/bin/python3 "$@"
"""


def package(
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    depends: tuple[str, ...] = (),
    noarch: str | None = None,
    entry_points: tuple[str, ...] = (),
) -> tuple[str, bytes, dict[str, object]]:
    """A file of the channel, its content, and what repodata.json says of it."""
    index: dict[str, object] = {
        "name": name, "version": version, "build": "0", "build_number": 0, "depends": list(depends),
        "subdir": "noarch" if noarch else "linux-64", "license": "MIT", "timestamp": 1700000000000,
    }  # fmt: skip
    if noarch:
        index["noarch"] = noarch
    paths = [
        {
            "_path": path, "path_type": "hardlink", "size_in_bytes": len(text),
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            **({"prefix_placeholder": PLACEHOLDER, "file_mode": "text"} if PLACEHOLDER in text else {}),
        }
        for path, text in files.items()
    ]  # fmt: skip
    link = {
        "noarch": {"type": noarch, "entry_points": list(entry_points)},
        "package_metadata_version": 1,
    }
    members = {
        "info/index.json": json.dumps(index),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
        "info/files": "".join(f"{path}\n" for path in files),
        **({"info/link.json": json.dumps(link)} if noarch else {}),
        **files,
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:bz2") as tar:
        for path, text in members.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(text.encode()), 0o755 if path.startswith("bin/") else 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
    data = made.getvalue()
    described = {
        **index, "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(), "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }  # fmt: skip
    return f"{name}-{version}-0.tar.bz2", data, described


def _known_to_pip(name: str, version: str) -> dict[str, str]:
    top = f"site-packages/{name}-{version}.dist-info"
    return {
        f"{top}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{top}/INSTALLER": "conda\n",
        f"{top}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{top}/RECORD": f"{name}.py,,\n",
    }


def channel(folder: Path, machine: str) -> Path:
    """The channel in that folder, for a processor as `uname -m` names it."""
    of_system = [
        package("python", "3.13.5", {f"bin/python{each}": _PYTHON for each in ("", "3", "3.13")}),
        package("toolbox", "2.0", {
            "bin/toolbox": f"#!/bin/sh\necho toolbox of {PLACEHOLDER}\n",
            "etc/conda/activate.d/toolbox.sh": "export TOOLBOX=$CONDA_PREFIX/share/toolbox\n",
            "share/toolbox/data": "data\n",
        }),
    ]  # fmt: skip
    pure = [
        package(
            "greetings", version,
            {
                "site-packages/greetings.py": f"def main():\n    print('greetings {version}')\n",
                **_known_to_pip("greetings", version),
            },
            depends=("python >=3.10",), noarch="python", entry_points=("greet = greetings:main",),
        )
        for version in ("1.0", "1.1")
    ]  # fmt: skip
    for subdir, packages in ((_SUBDIR[machine], of_system), ("noarch", pure)):
        place = folder / subdir
        place.mkdir(parents=True)
        for name, data, _ in packages:
            (place / name).write_bytes(data)
        told = {
            "info": {"subdir": subdir},
            "packages": {name: described for name, _, described in packages},
            "packages.conda": {},
            "repodata_version": 1,
        }
        (place / "repodata.json").write_text(json.dumps(told))
    return folder
