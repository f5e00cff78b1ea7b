"""Values as nvidia-smi prints them: sizes, switches, modes, and what stands where there is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 400
"""A value or a name longer than this is cut: none that means anything is."""

LOST, RESET, UNKNOWN = 15, 16, 999
"""NVML's error codes: GPU is lost, a reset is required, unknown error."""

# In the spellings of nvidia-smi's versions.
_CODES = {
    "n/a": 3,
    "not supported": 3,
    "insufficient permissions": 4,
    "not found": 6,
    "timeout": 10,
    "function not found": 13,
    "requested functionality has been deprecated": 26,
    "unknown error": UNKNOWN,
    "err!": UNKNOWN,
}
_BEGINNINGS = {
    "gpu is lost": LOST,
    "gpu requires re": RESET,  # "reset", "restart"
    "the operating system has blocked": 17,
}
_UNITS = {
    "kib": 1 << 10,
    "kb": 1 << 10,
    "mib": 1 << 20,
    "mb": 1 << 20,
    "gib": 1 << 30,
    "gb": 1 << 30,
}
_COMPUTE_MODES = ("default", "exclusivethread", "prohibited", "exclusiveprocess")
_VIRTUALIZATION = ("none", "passthrough", "vgpu", "hostvgpu", "hostvsga")
_RECOVERY = ("none", "reset", "reboot", "drainpp", "drainandreset", "recoverimexdomain", "busreset",
             "systemreboot")  # fmt: skip
_FABRIC = ("notsupported", "notstarted", "inprogress", "completed")

Reader = Callable[[str], Any]
"""Reads a printed value; None where it is none."""

Table = tuple[tuple[str, Reader, tuple[str, ...]], ...]
"""Keys of NVML's shape, how each is read, and the names that its value may stand under."""


def put_all(
    found: dict[str, Any],
    errors: dict[str, int],
    fields: Mapping[str, str],
    wanted: Table,
) -> None:
    """Each wanted key: its value, or an error code; -1 where what is printed cannot be read."""
    for key, read, paths in wanted:
        texts = [fields[path] for path in paths if fields.get(path)]
        # An older schema's element may stand beside the newer one with no value in it.
        text = next((item for item in texts if code_of(item) is None), texts[0] if texts else None)
        if text is None:
            continue
        code = code_of(text)
        value = read(text) if code is None else None
        if value is None:
            errors[key] = -1 if code is None else code
        else:
            found[key] = value


def code_of(text: str) -> int | None:
    """NVML's error code for what is printed where there is no value; None for a value."""
    text = text[:LONGEST].strip().strip("[]").lower()
    begun = (code for start, code in _BEGINNINGS.items() if text.startswith(start))
    return _CODES[text] if text in _CODES else next(begun, None)


def count(text: str) -> int | None:
    match = re.fullmatch(r"\d{1,9}", text.strip(), re.ASCII)
    return int(match[0]) if match else None


def version(text: str) -> str | None:
    """A version without the remark that some drivers print after it ("[Deprecated; ...]")."""
    match = re.match(r"\d{1,6}(?:\.\d{1,6}){1,3}(?![\w.])", text.strip(), re.ASCII)
    return match[0] if match else None


def cuda_version(text: str) -> int | None:
    """ "12.4" -> 12040, as NVML counts it."""
    match = re.match(r"(\d{1,3})\.(\d{1,2})(?!\d)", text.strip(), re.ASCII)
    return int(match[1]) * 1000 + int(match[2]) * 10 if match else None


def size(text: str) -> int | None:
    """ "81559 MiB", or MiB without a unit, in bytes; None for nothing."""
    match = re.fullmatch(r"(\d{1,9})(?: ?([KMG]i?B))?", text.strip(), re.ASCII | re.IGNORECASE)
    return int(match[1]) * _UNITS[(match[2] or "MiB").lower()] if match else None


def total_size(text: str) -> int | None:
    return size(text) or None


def switch(text: str) -> int | None:
    return {"enabled": 1, "disabled": 0}.get(text.strip().lower())


def yes(text: str) -> int | None:
    return {"yes": 1, "no": 0}.get(text.strip().lower())


def compute_capability(text: str) -> list[int] | None:
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,2})", text.strip(), re.ASCII)
    return [int(match[1]), int(match[2])] if match else None


def _one_of(words: tuple[str, ...]) -> Reader:
    def read(text: str) -> int | None:
        word = re.sub(r"[^a-z]", "", text.lower())
        return words.index(word) if word in words else None

    return read


compute_mode = _one_of(_COMPUTE_MODES)


def _amount(unit: str, factor: int) -> Reader:
    def read(text: str) -> int | None:
        match = re.fullmatch(rf"(-?\d{{1,9}}(?:\.\d{{1,6}})?)(?: ?{unit})?", text.strip(), re.ASCII)
        return round(float(match[1]) * factor) if match else None

    return read


def label(text: str) -> str | None:
    """A text that says something."""
    return text.strip()[:LONGEST] or None


def gpu_uuid(text: str) -> str | None:
    return text.strip() if re.fullmatch(r"GPU-[\w-]{1,80}", text.strip(), re.ASCII) else None


def mig_uuid(text: str) -> str | None:
    return text.strip() if re.fullmatch(r"MIG-[\w/-]{1,100}", text.strip(), re.ASCII) else None


recovery_action = _one_of(_RECOVERY)
virtualization = _one_of(_VIRTUALIZATION)
fabric_state = _one_of(_FABRIC)
percent = _amount("%", 1)
celsius = _amount("C", 1)
milliwatts = _amount("W", 1000)
