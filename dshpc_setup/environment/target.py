"""The machine that packages are locked for: the image's Python on Debian trixie, not the host."""

from __future__ import annotations

PYTHON = "3.13"  # of Debian trixie
_GLIBC = 41  # of Debian trixie: 2.41
_FULL = "3.13.5"
_OLDEST = {"x86_64": 5, "aarch64": 17}  # PEP 600: the first glibc that has such wheels
_LEGACY = {
    "x86_64": ("manylinux2014", "manylinux2010", "manylinux1", "linux"),
    "aarch64": ("manylinux2014", "linux"),
}
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Debian's name -> that of wheels


def options(architecture: str) -> list[str]:
    """pip's options that choose wheels for that machine alone ("amd64" or "arm64")."""
    machine = MACHINES[architecture]
    newest_first = [f"manylinux_2_{minor}" for minor in range(_GLIBC, _OLDEST[machine] - 1, -1)]
    tag = PYTHON.replace(".", "")
    return [
        "--only-binary=:all:",
        f"--python-version={PYTHON}",
        "--implementation=cp",
        *(f"--abi={abi}" for abi in (f"cp{tag}", "abi3", "none")),
        *(f"--platform={name}_{machine}" for name in (*newest_first, *_LEGACY[machine])),
    ]


def markers(architecture: str) -> dict[str, str]:
    """What environment markers (PEP 508) mean there."""
    return {
        "implementation_name": "cpython",
        "implementation_version": _FULL,
        "os_name": "posix",
        "platform_machine": MACHINES[architecture],
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": _FULL,
        "python_version": PYTHON,
        "sys_platform": "linux",
    }
