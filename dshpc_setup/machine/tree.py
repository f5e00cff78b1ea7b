"""root.txtar: the files of a recorded machine as one text.

    -- path --                  a file; its text is what stands between this header and the next
    -- path quoted --           the same for any text: each line is a JSON string, a piece of it
    -- path -> target --        a symbolic link
    -- path device --           a character device node
    -- path there --            it exists, and nothing else was asked: a folder, a socket, a library
    -- path denied --           it may not be read; what follows is the system's own words
    -- path error --            reading it fails; what follows is how
    -- path hangs --            reading it never ends

Behind `device` may stand its number (major:minor), and behind `there` the processor that a program or
library is for (`there x86_64`, `there machine 8`; `none`: it is neither). Behind them and `quoted` may
stand how opening it for reading and writing goes, where not well (`denied`, `error`), and the number of
its group: `-- dev/kfd device 510:0 denied 109 --`. Last comes, of anything but a link, when it changed, in
seconds since the epoch: `-- etc/docker/daemon.json @1748772000 --`. A path or target with blanks in it
is written as a JSON string.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dshpc_setup.documents import foreign
from dshpc_setup.facts import State

_LONGEST_PATH = 4096
NO_PROGRAM = "none"
"""In place of a processor: it was looked at, and is neither program nor library."""

_NAME = r'"(?:[^"\\]|\\.)*"|\S(?:.*?\S)??'
_HEADER = re.compile(
    rf"-- (?P<path>{_NAME})"
    r"(?: -> (?P<target>\"(?:[^\"\\]|\\.)*\"|\S+)"
    r"|(?: (?P<kind>quoted|device|there)(?:(?<=device) (?P<major>\d{1,9}):(?P<minor>\d{1,9}))?"
    r"(?:(?<=there) (?P<architecture>machine \d{1,5}|(?!denied|error)[a-z]\w{1,20}))?"
    r"(?: (?P<access>denied|error))?(?: (?P<group>\d{1,10}))?"
    r"| (?P<failure>denied|error|hangs))?(?: @(?P<changed>\d{1,12}(?:\.\d{1,9})?))?)"
    r" --\s*"
)
_PLAIN_TEXT = re.compile(
    r"(?:[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]*\n)?"
)
_PLAIN_NAME = re.compile(r"[^\s\"\x00-\x20\x7f\ud800-\udfff]+")


@dataclass(frozen=True)
class Tree:
    """The files, by absolute path."""

    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    devices: frozenset[str] = frozenset()
    denied: Mapping[str, str] = field(default_factory=dict)  # path -> the system's words
    errors: Mapping[str, str] = field(default_factory=dict)
    hangs: frozenset[str] = frozenset()
    there: frozenset[str] = frozenset()
    groups: Mapping[str, int] = field(default_factory=dict)
    access: Mapping[str, State] = field(default_factory=dict)  # where not `present`
    numbers: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # of devices
    changed: Mapping[str, float] = field(default_factory=dict)
    architectures: Mapping[str, str] = field(default_factory=dict)  # of programs and libraries

    def names(self) -> frozenset[str]:
        return frozenset(
            {*self.texts, *self.links, *self.devices, *self.denied, *self.errors, *self.hangs,
             *self.there}
        )  # fmt: skip


class TreeError(ValueError):
    """A header that says nothing sensible; the text names it."""


@dataclass
class _Entry:
    """A header, and the lines up to the next one."""

    header: re.Match[str]
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.lines)


def parse_tree(text: str) -> Tree:
    """The archive's entries; text before the first header is a remark. Raises TreeError."""
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    failures: dict[str, dict[str, str]] = {"denied": {}, "error": {}, "hangs": {}}
    kinds: dict[str, set[str]] = {"device": set(), "there": set()}
    groups: dict[str, int] = {}
    access: dict[str, State] = {}
    numbers: dict[str, tuple[int, int]] = {}
    changed: dict[str, float] = {}
    architectures: dict[str, str] = {}
    for entry in _entries(text):
        header = entry.header
        path = _path(header["path"])
        if header["target"]:
            links[path] = _name(header["target"])
        elif header["failure"]:
            failures[header["failure"]][path] = entry.text.strip()
        elif header["kind"] in kinds:
            kinds[header["kind"]].add(path)
        elif header["kind"] == "quoted":
            texts[path] = _unquoted(path, entry.text)
        else:
            texts[path] = entry.text
        if header["group"]:
            groups[path] = int(header["group"])
        if header["access"]:
            access[path] = header["access"]  # type: ignore[assignment]
        if header["major"]:
            numbers[path] = int(header["major"]), int(header["minor"])
        if header["architecture"]:
            architectures[path] = header["architecture"]
        if header["changed"]:
            changed[path] = float(header["changed"])
    return Tree(
        texts,
        links,
        frozenset(kinds["device"]),
        failures["denied"],
        failures["error"],
        frozenset(failures["hangs"]),
        frozenset(kinds["there"]),
        groups,
        access,
        numbers,
        changed,
        architectures,
    )


def _entries(text: str) -> Iterator[_Entry]:
    entry: _Entry | None = None
    for line in text.split("\n"):
        # Whatever else Python takes for an end of line (form feed, NEL) is part of a file's text.
        header = _HEADER.fullmatch(line) if line.startswith("-- ") else None
        if header is not None:
            if entry is not None:
                yield entry
            entry = _Entry(header)
        elif entry is not None:
            entry.lines.append(f"{line}\n")
    if entry is not None:
        # What follows the last newline is no line, unless the file ends without one.
        if entry.lines and entry.lines[-1] == "\n":
            entry.lines.pop()
        yield entry


def _path(text: str) -> str:
    path = posixpath.normpath(f"/{_name(text).lstrip('/')}")
    if len(path) > _LONGEST_PATH:
        raise TreeError(f"the path {path[:60]!r}... is too long")
    return path


def _name(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(foreign.value(text))
    except ValueError:
        raise TreeError(f"the name {text[:60]} is no JSON string") from None


def _unquoted(path: str, body: str) -> str:
    pieces = []
    for line in filter(str.strip, body.split("\n")):
        try:
            piece = foreign.value(line)
        except (ValueError, RecursionError):
            piece = None
        if not isinstance(piece, str):
            raise TreeError(f"{path[:200]} is quoted, but {line[:60]!r} is no JSON string")
        pieces.append(piece)
    return "".join(pieces)


def write_tree(tree: Tree) -> str:
    """The text that `parse_tree` reads as this tree."""
    return "".join(_written(tree, path) for path in sorted(tree.names()))


def _written(tree: Tree, path: str) -> str:
    name = _quoted_name(path.lstrip("/"))
    if path in tree.links:
        return f"-- {name} -> {_quoted_name(tree.links[path])} --\n"
    when = f" @{_seconds(tree.changed[path])}" if path in tree.changed else ""
    if path in tree.hangs:
        return f"-- {name} hangs{when} --\n"
    for kind, failures in (("denied", tree.denied), ("error", tree.errors)):
        if path in failures:
            words = " ".join(failures[path].split())
            return f"-- {name} {kind}{when} --\n" + (f"{words}\n" if words else "")
    more = [str(tree.access[path])] if path in tree.access else []
    if path in tree.groups:
        more.append(str(tree.groups[path]))
    behind = "".join(f" {word}" for word in more)
    if path in tree.texts:
        text = tree.texts[path]
        if not more and _is_plain(text):
            return f"-- {name}{when} --\n{text}"
        return f"-- {name} quoted{behind}{when} --\n{_quoted(text)}"
    kind = "device" if path in tree.devices else "there"
    if kind == "device" and path in tree.numbers:
        kind = "device {}:{}".format(*tree.numbers[path])
    elif path in tree.architectures:
        kind = f"{kind} {tree.architectures[path]}"
    return f"-- {name} {kind}{behind}{when} --\n"


def _seconds(when: float) -> str:
    return f"{when:.6f}".rstrip("0").rstrip(".")


def _is_plain(text: str) -> bool:
    if not all(_PLAIN_TEXT.fullmatch(line) for line in text.splitlines(keepends=True)):
        return False
    return not any(line.startswith("-- ") for line in text.split("\n"))


def _quoted(text: str) -> str:
    """JSON strings, one for a line or for what NULs part."""
    pieces = re.findall(r"[^\n\0]*[\n\0]|[^\n\0]+", text)
    return "".join(f"{json.dumps(piece)}\n" for piece in pieces)


def _quoted_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)
