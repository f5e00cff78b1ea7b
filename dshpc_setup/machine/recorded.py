"""A machine as a folder: what was captured, or written by hand, answers in place of the real one.

    machine.yaml    format, system, release, machine, uid, env, origin and a remark
    root.txtar      files ("-- path --"), links ("-- path -> target --"), device nodes
                    ("-- path device --"), files that may not be read ("-- path denied --")
    commands.yaml   a list of {argv, code, stdout, stderr} or {argv, state: absent|denied|timeout}
    nvml.json       {"state", "value", "code", "detail"}; no file: there is no such library
    amdsmi.json     the same
    docker.json     the same

YAML and not TOML: Python 3.10 reads no TOML by itself, and nothing here writes it.
"""

from __future__ import annotations

import json
import posixpath
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult, Ended, Read, Reply, Say, apart

FORMAT = 1
_KEYS = {"format", "system", "release", "machine", "uid", "env", "origin", "remark"}
_STATES = get_args(State)


class Unrecorded(BaseException):
    """The machine was asked something that its folder does not answer.

    No Exception: a probe that survives every failure must not survive this one.
    """


@dataclass(frozen=True)
class Tree:
    """The files of root.txtar."""

    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    devices: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        return frozenset({*self.texts, *self.links, *self.devices, *self.denied})


class RecordedMachine:
    """Replays `folder`.

    Raises DshpcError where the folder is no machine, naming the file and what is wrong with it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._about = _read_about(self.folder)
        self.tree = parse_tree(_text(self.folder / "root.txtar") or "")
        self._names = self.tree.names()
        self._commands = _read_commands(self.folder / "commands.yaml")

    @property
    def env(self) -> Mapping[str, str]:
        env = self._about.get("env") or {}
        return {str(key): str(value) for key, value in env.items()}

    @property
    def system(self) -> tuple[str, str, str]:
        return self._about["system"], self._about["release"], self._about["machine"]

    @property
    def uid(self) -> int:
        return int(self._about.get("uid", 0))

    @property
    def simulated(self) -> str | None:
        return None

    def _resolve(self, path: str) -> str:
        """With links followed, as far as they lead to something recorded."""
        path = posixpath.normpath(path)
        for _ in range(16):
            parts = path.split("/")
            for length in range(len(parts), 1, -1):
                head = "/".join(parts[:length])
                if head in self.tree.links:
                    base = posixpath.dirname(head)
                    target = posixpath.normpath(posixpath.join(base, self.tree.links[head]))
                    path = "/".join([target, *parts[length:]])
                    break
            else:
                return path
        return path

    def read(self, path: str) -> Read:
        path = self._resolve(path)
        if path in self.tree.denied:
            return Read("denied", detail="Permission denied")
        text = self.tree.texts.get(path)
        return Read("absent") if text is None else Read("present", text)

    def exists(self, path: str) -> bool:
        path = posixpath.normpath(path)
        return any(
            item in self._names or any(name.startswith(f"{item}/") for name in self._names)
            for item in (path, self._resolve(path))
        )

    def listdir(self, path: str) -> tuple[str, ...]:
        inside = f"{self._resolve(path).rstrip('/')}/"
        found = {
            name[len(inside) :].split("/")[0] for name in self._names if name.startswith(inside)
        }
        return tuple(sorted(found))

    def readlink(self, path: str) -> str | None:
        return self.tree.links.get(posixpath.normpath(path))

    def is_device(self, path: str) -> bool:
        return self._resolve(path) in self.tree.devices

    def group_of(self, path: str) -> int | None:
        return 0 if self.exists(path) else None

    def access(self, path: str) -> State:
        if not self.exists(path):
            return "absent"
        return "denied" if self._resolve(path) in self.tree.denied else "present"

    def which(self, program: str) -> str | None:
        if "/" in program:
            return program if self.exists(program) else None
        known = any(argv[0] == program and found.state != "absent" for argv, found in self._items())
        return f"/usr/bin/{program}" if known else None

    def _items(self) -> list[tuple[tuple[str, ...], CommandResult]]:
        return list(self._commands.items())

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        del deadline_s, stdin, env, cwd
        asked = (argv[0].removeprefix("/usr/bin/"), *argv[1:])
        result = self._commands.get(asked)
        if result is None:
            where = self.folder / "commands.yaml"
            raise Unrecorded(f"{where} does not hold the command {list(asked)}")
        for line in result.stdout.splitlines() if on_line else ():
            assert on_line is not None
            on_line(line)
        return result

    def start_daemon(self, argv: Sequence[str], *, log: str) -> int:
        raise Unrecorded(
            f"a recorded machine starts nothing, and was asked to: {list(argv)} > {log}"
        )

    def apart(
        self, questions: Mapping[str, Callable[[Say], None]], *, deadline_s: float
    ) -> Mapping[str, Ended]:
        del deadline_s
        return apart.in_place(questions)

    def nvml(self, deadline_s: float) -> Reply:
        del deadline_s
        return self._reply("nvml.json", "libnvidia-ml.so.1", 12)

    def nvml_readings(self, deadline_s: float) -> Reply:
        del deadline_s
        return self._reply("nvml-readings.json", "libnvidia-ml.so.1", 12)

    def amdsmi(self, deadline_s: float) -> Reply:
        del deadline_s
        return self._reply("amdsmi.json", "libamd_smi.so", None)

    def docker(self, deadline_s: float) -> Reply:
        del deadline_s
        return self._reply("docker.json", "unix:///var/run/docker.sock", None)

    def _reply(self, name: str, source: str, missing: int | None) -> Reply:
        path = self.folder / name
        text = _text(path)
        if text is None:
            return Reply("absent", None, source, "it is not there", missing)
        try:
            found = json.loads(text)
        except ValueError as error:
            raise _bad(path, str(error)) from None
        if not isinstance(found, dict) or found.get("state") not in _STATES:
            raise _bad(path, f"'state' must be one of {', '.join(_STATES)}")
        return Reply(
            found["state"],
            found.get("value"),
            found.get("source", source),
            found.get("detail"),
            found.get("code"),
        )

    def clock(self) -> float:
        return time.monotonic()


def parse_tree(text: str) -> Tree:
    """The archive's entries; text before the first header is a remark.

    A file's text is what stands between its header and the next one.
    """
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    devices: set[str] = set()
    denied: set[str] = set()
    current: str | None = None
    for line in text.splitlines(keepends=True):
        match = re.fullmatch(r"-- (/?\S.*?)(?: -> (\S+)| (device|denied))? --\s*", line)
        if match is None:
            if current is not None:
                texts[current] += line
            continue
        path, target, kind = f"/{match[1].lstrip('/')}", match[2], match[3]
        current = None
        if target:
            links[path] = target
        elif kind == "device":
            devices.add(path)
        elif kind == "denied":
            denied.add(path)
        else:
            current = path
            texts[path] = ""
    return Tree(texts, links, frozenset(devices), frozenset(denied))


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / "machine.yaml"
    text = _text(path)
    if text is None:
        raise usage_error(
            f"{folder} is no recorded machine.",
            f"There is no {path.name} in it that can be read.",
            "Name a folder that `dshpc record` made.",
        )
    about = _yaml(path, text)
    if not isinstance(about, dict):
        raise _bad(path, "a list of 'key: value' lines is expected")
    if about.get("format") != FORMAT:
        raise _bad(
            path, f"'format' is {about.get('format')!r}; this version of dshpc reads {FORMAT} only"
        )
    for key in ("system", "release", "machine"):
        if not isinstance(about.get(key), str):
            raise _bad(path, f"{key!r} is missing, or is not a text")
    unknown = sorted(str(key) for key in set(about) - _KEYS)
    if unknown:
        raise _bad(path, f"there is no key {unknown[0]!r}; there are: {', '.join(sorted(_KEYS))}")
    if not isinstance(about.get("env") or {}, dict):
        raise _bad(path, "'env' must be 'NAME: value' lines")
    return about


def _read_commands(path: Path) -> dict[tuple[str, ...], CommandResult]:
    text = _text(path)
    items = _yaml(path, text) if text is not None else []
    if not isinstance(items, list):
        raise _bad(path, "a list of commands is expected")
    found: dict[tuple[str, ...], CommandResult] = {}
    for number, item in enumerate(items, 1):
        argv = item.get("argv") if isinstance(item, dict) else None
        if not isinstance(argv, list) or not argv:
            raise _bad(path, f"command {number}: 'argv' must be a list of words")
        words = tuple(str(word) for word in argv)
        state = item.get("state", "present")
        if state not in _STATES:
            raise _bad(path, f"command {number}: 'state' must be one of {', '.join(_STATES)}")
        code = int(item.get("code", 0)) if state == "present" else None
        found[words] = CommandResult(
            words, state, code, str(item.get("stdout", "")), str(item.get("stderr", "")), 1.0
        )
    return found


def _yaml(path: Path, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _bad(path, " ".join(str(error).split())) from None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, str(error)) from None


def _bad(path: Path, why: str) -> DshpcError:
    return DshpcError(
        f"{path} cannot be read as a recorded machine.", why, (f"Correct {path}, or record anew.",)
    )
