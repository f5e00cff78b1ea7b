"""The files of a recorded machine, read and checked: what is wrong is told with file and key.

Somebody else made them, so nothing in them is taken for granted: their size, their shape, their
types.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult, Reply
from dshpc_setup.machine.tree import Tree, TreeError, parse_tree

FORMAT = 1
REPLIES = {
    "nvml": ("nvml.json", "libnvidia-ml.so.1", 12),
    "nvml_readings": ("nvml-readings.json", "libnvidia-ml.so.1", 12),
    "amdsmi": ("amdsmi.json", "libamd_smi.so", None),
    "docker": ("docker.json", "unix:///var/run/docker.sock", None),
}
"""Question -> file, and what answers where there is none: the library, NVML's code for its absence."""

_STATES = get_args(State)
_MOST_BYTES = 64 << 20
_MOST_YAML_BYTES = 8 << 20  # YAML is read slowly
_MOST_COMMANDS = 10_000
_DEEPEST_YAML = 32
_DEEPEST = 5  # value, devices, one device, its instances, one of them

# What the values of the replies are, as far as they are known (machine/nvml.py, machine/amdsmi.py).
_WHOLE = frozenset(
    "index memory_bytes minor numa_node mig_mode gi ci persistence compute_mode ecc virtualization "
    "cuda_version count link state status error memory_used_bytes memory_total_bytes utilization "
    "temperature_c power_mw power_limit_mw mig_pending retired_pending recovery_action health_mask "
    "health_summary uncorrectable pending failed volatile_dram volatile_sram aggregate_dram aggregate_sram "
    "sram_threshold".split()
)
_TEXTS = frozenset(
    "name uuid pci_bus_id cpus driver_version nvml_version kind peer text host".split()
)
_LISTS = frozenset("devices mig nvlinks compute slices".split())
_OBJECTS = frozenset("fabric errors version info remapped ecc_errors".split())


@dataclass(frozen=True)
class About:
    """machine.yaml."""

    system: str
    release: str
    machine: str
    uid: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str | None] | None = None  # name -> path, None: not installed
    disks: Mapping[str, int] = field(default_factory=dict)  # path -> MiB of its file system


def read_about(folder: Path) -> About:
    """machine.yaml; raises DshpcError, a usage error where the folder is no machine at all."""
    path = folder / "machine.yaml"
    _need_folder(folder)
    text = read_text(path, _MOST_YAML_BYTES)
    if text is None:
        raise _no_machine(folder, f"There is no {path.name} in it.")
    about = _yaml(path, text)
    if not isinstance(about, dict):
        raise bad(path, "a list of 'key: value' lines is expected")
    _need_format(path, about.get("format"))
    _only(path, "", about, {*About.__dataclass_fields__, "format", "origin", "remark"})
    for key in ("system", "release", "machine"):
        if not isinstance(about.get(key), str):
            raise bad(path, f"{key!r} is missing, or is not a text")
    for key in ("origin", "remark"):
        if not isinstance(about.get(key, ""), str):
            raise bad(path, f"{key!r} must be a text")
    uid = about.get("uid", 0)
    if type(uid) is not int or not 0 <= uid < 1 << 32:
        raise bad(path, "'uid' must be the number of a user")
    programs = None
    if "programs" in about:
        programs = _names(path, "programs", about["programs"], or_none=True)
    env = _names(path, "env", about.get("env") or {})
    return About(
        about["system"],
        about["release"],
        about["machine"],
        uid,
        {key: value for key, value in env.items() if value is not None},
        programs,
        _disks(path, about.get("disks") or {}),
    )


def _disks(path: Path, value: object) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise bad(path, "'disks' must be 'PATH: MiB' lines")
    for name, size in value.items():
        if not isinstance(name, str) or not name.startswith("/"):
            raise bad(path, "'disks': every name must be an absolute path")
        if type(size) is not int or not 0 < size < 1 << 40:
            raise bad(path, f"'disks': {_short(name)} must be a size in MiB")
    return value


def _need_folder(folder: Path) -> None:
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise _no_machine(folder, "It is a file, not a folder.")
    except (FileNotFoundError, NotADirectoryError):
        raise _no_machine(folder, "There is no such folder.") from None
    except OSError as error:
        raise bad(folder, str(error)) from None


def _need_format(path: Path, version: object) -> None:
    if type(version) is int and version == FORMAT:
        return
    shown = repr(version) if type(version) in (int, str, float) else f"a {type(version).__name__}"
    how = "missing" if version is None else shown[:40]
    why = f"'format' is {how}; this version of dshpc reads {FORMAT} only"
    if type(version) is int and version > FORMAT:
        raise usage_error(f"{path} was recorded by a newer version of dshpc.", why, "Update dshpc.")
    raise bad(path, why)


def _no_machine(folder: Path, why: str) -> DshpcError:
    return usage_error(
        f"{folder} is no recorded machine.", why, "Name a folder that `dshpc record` made."
    )


def _names(path: Path, key: str, value: object, *, or_none: bool = False) -> dict[str, str | None]:
    if not isinstance(value, dict):
        raise bad(path, f"{key!r} must be 'NAME: value' lines")
    for name, text in value.items():
        if not isinstance(name, str):
            raise bad(path, f"{key!r}: every name must be a text")
        if not isinstance(text, str) and not (or_none and text is None):
            raise bad(path, f"{key!r}: {_short(name)} must be a text (put it in quotes)")
    return value


def read_root(folder: Path) -> Tree:
    """root.txtar; an empty tree where there is none."""
    path = folder / "root.txtar"
    try:
        return parse_tree(read_text(path, _MOST_BYTES) or "")
    except TreeError as error:
        raise bad(path, str(error)) from None


def read_kernel_log(folder: Path) -> str | None:
    """kernel.log, the kernel's log as `dmesg` or the journal print it; None where there is none."""
    return read_text(folder / "kernel.log", _MOST_BYTES)


def read_commands(folder: Path) -> dict[tuple[str, ...], CommandResult]:
    """commands.yaml: what each command line answered."""
    path = folder / "commands.yaml"
    text = read_text(path, _MOST_YAML_BYTES)
    items = _yaml(path, text) if text is not None else []
    if items is None:  # nothing but comments
        items = []
    if not isinstance(items, list) or len(items) > _MOST_COMMANDS:
        raise bad(path, "a list of commands is expected")
    found = (_command(path, number, item) for number, item in enumerate(items, 1))
    return {result.argv: result for result in found}


def _command(path: Path, number: int, item: object) -> CommandResult:
    where = f"command {number}: "
    if not isinstance(item, dict):
        raise bad(path, f"{where}'argv: [...]' and its answer are expected")
    argv = item.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(each, str) for each in argv):
        raise bad(path, f"{where}'argv' must be a list of texts (put numbers in quotes)")
    _only(path, where, item, {"argv", "state", "code", "stdout", "stderr"})
    state = item.get("state", "present")
    if state not in _STATES:
        raise bad(path, f"{where}'state' must be one of {', '.join(_STATES)}")
    for key in ("stdout", "stderr"):
        if not isinstance(item.get(key, ""), str):
            raise bad(path, f"{where}{key!r} must be a text (put it in quotes)")
    code = item.get("code", 0)
    if type(code) is not int or not -1024 < code < 1024:
        raise bad(path, f"{where}'code' must be an exit code")
    return CommandResult(
        tuple(argv),
        state,
        code if state == "present" else None,
        item.get("stdout", ""),
        item.get("stderr", ""),
        1.0,
    )


def read_reply(folder: Path, question: str) -> Reply:
    """A library's or the engine's answer; no file: there is none such."""
    name, source, missing = REPLIES[question]
    path = folder / name
    text = read_text(path, _MOST_BYTES)
    if text is None:
        return Reply("absent", None, source, "it is not there", missing)
    try:
        found = foreign.value(text)
    except (ValueError, RecursionError) as error:
        raise bad(path, f"it is not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("state") not in _STATES:
        raise bad(path, f"'state' must be one of {', '.join(_STATES)}")
    _only(path, "", found, {"state", "value", "source", "detail", "code"})
    source = found.get("source", source)
    detail, code, value = found.get("detail"), found.get("code"), found.get("value")
    if not isinstance(source, str):
        raise bad(path, "'source' must be a text")
    if detail is not None and not isinstance(detail, str):
        raise bad(path, "'detail' must be a text")
    if code is not None and type(code) is not int:
        raise bad(path, "'code' must be a whole number")
    if value is None and found["state"] == "present":
        raise bad(path, "'value' is missing")
    if value is not None and not isinstance(value, dict):
        raise bad(path, "'value' must be an object")
    _check(path, "value", value)
    return Reply(found["state"], value, source, detail, code)


def _check(path: Path, where: str, value: Any, deep: int = 1) -> None:
    """The types of the keys that are known: of the value, of its devices and of what they consist."""
    if deep > _DEEPEST:
        raise bad(path, f"'{where}' lies too deep")
    for key, item in value.items() if isinstance(value, dict) else ():
        here = f"{where}.{_short(key)}"
        if item is None:
            continue
        if key in _WHOLE and type(item) is not int:
            raise bad(path, f"'{here}' must be a whole number")
        if key in _TEXTS and not isinstance(item, str):
            raise bad(path, f"'{here}' must be a text")
        if key in _OBJECTS and not isinstance(item, dict):
            raise bad(path, f"'{here}' must be an object")
        if key in _LISTS:
            _check_list(path, here, key, item, deep)
        if key in ("fabric", "remapped", "ecc_errors"):
            _check(path, here, item, deep + 1)


def _check_list(path: Path, where: str, key: str, items: Any, deep: int) -> None:
    if not isinstance(items, list):
        raise bad(path, f"'{where}' must be a list")
    numbers = key in ("compute", "slices")
    for position, item in enumerate(items):
        here = f"{where}[{position}]"
        if numbers and type(item) is not int:
            raise bad(path, f"'{here}' must be a whole number")
        if not numbers and not isinstance(item, dict):
            raise bad(path, f"'{here}' must be an object")
        _check(path, here, item, deep + 1)


def _only(path: Path, where: str, found: Mapping[Any, Any], known: set[str]) -> None:
    unknown = sorted(_short(key) for key in found if key not in known)
    if unknown:
        there = ", ".join(sorted(known))
        raise bad(path, f"{where}there is no key {unknown[0]!r}; there are: {there}")


def _yaml(path: Path, text: str) -> Any:
    """As YAML 1.1 has it, as which it was written; without aliases."""
    from dshpc_setup.documents import yaml_nodes

    try:
        root = yaml_nodes.read(text, deepest=_DEEPEST_YAML, aliases=False)
        return None if root is None else yaml_nodes.typed(root)
    except Exception as error:  # noqa: BLE001  (beside its own it raises what a bad number raises)
        why = " ".join(str(error.__cause__ or error).split())[:500]
        raise bad(path, why or type(error).__name__) from None


def read_text(path: Path, most_bytes: int) -> str | None:
    """The file's text as it is; None where there is none. Raises DshpcError for what is no text."""
    try:
        # A named pipe would keep us waiting for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise bad(path, "it is not a plain file")
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise bad(path, f"it is larger than {most_bytes >> 20} MiB")
        return data.decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise bad(path, f"it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except (OSError, ValueError) as error:
        raise bad(path, str(error)) from None


def bad(path: Path, why: str) -> DshpcError:
    """A file that cannot be replayed."""
    return usage_error(
        f"{path} cannot be read as a recorded machine.",
        why,
        f"Correct {path}, or record the machine again.",
    )


def _short(key: object) -> str:
    text = key if isinstance(key, str) else type(key).__name__
    return text if len(text) <= 40 else f"{text[:40]}..."
