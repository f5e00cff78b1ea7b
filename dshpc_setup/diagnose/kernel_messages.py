"""The kernel's log as messages: times and names of hosts taken off, the lines of one message joined. Pure.

A driver prints one message over several lines, and a rule that looks at one line never sees it whole:

    [ 1157.046099] NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db5)
                   NVRM: installed in this system is not supported by open
                   NVRM: nvidia.ko because it does not include the required GPU

`dmesg` marks such lines by their indent; the journal, a syslog file and busybox do not, so the messages
of NVIDIA's driver that have several lines are known by how they begin. Lines of two devices are never joined.

Sources: util-linux dmesg (its forms of time, the indent), RFC 3164 and rsyslog (prefixes, #012), the
kernel's Documentation/ABI/testing/dev-kmsg; nv.c, nv-pci.c and osinit.c of NVIDIA/open-gpu-kernel-modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MOST_LETTERS = 600
_MOST_LINES = 12  # of one message

_WHEN = r"\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d)?"
_STAMP = re.compile(
    r"(?:"
    r"<\d{1,3}>"  # a priority
    r"|\[ *[+<]? *\d{1,10}\.\d{1,9}>?\]"  # since the start, or since the line before
    r"|\[ *[TC]\d{1,10}\]"  # the caller
    r"|\[[A-Z][a-z]{2} {1,2}(?:[A-Z][a-z]{2} {1,2})?\d{1,2} \d\d:\d\d:\d\d \d{4}\]"  # dmesg -T
    r"|\[[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d\]"  # dmesg -e
    r"|[a-z]{2,8} {0,3}:[a-z]{3,6} {0,3}:(?= )"  # dmesg -x: kern  :err   :
    rf"|{_WHEN}(?: [\w.-]{{1,64}} kernel:)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} kernel:"  # syslog
    r"|\d{1,2},\d{1,20},\d{1,20},[-c+,\w=]{1,40};"  # /dev/kmsg
    r"|kernel:(?= )"
    r")[ \t]*"
)
_MOST_STAMPS = 4
_IN_ONE_LINE = re.compile(r"#012|\\x0a|\\n(?=\s*NVRM:)")

_DEVICE = re.compile(
    r"(?:(?<=PCI:)|(?<![\w:.]))([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?!\w|:\w)",
    re.IGNORECASE,
)
_TAG = "NVRM:"
_OPENS = re.compile(
    r"NVRM: (?:The NVIDIA (?:[^:]{1,60} )?GPU\b|The NVIDIA probe routine was not called"
    r"|This PCI I/O region assigned|API mismatch:)"
)
# What begins a message of its own: a card, a function's name, what the driver says in one line
_BEGINS = re.compile(
    r"(?:GPU\b|GPU\d|Xid\b|loading\b|None of\b|No NVIDIA\b|The NVIDIA\b|This PCI\b|API mismatch\b"
    r"|\w*_\w|\w+:|[a-z]+[A-Z])"
)
_GOES_ON = re.compile(r"Please\b|This can occur\b|Try\b|The system BIOS\b|For more\b|See\b")


@dataclass
class _Message:
    text: str
    lines: int = 1
    devices: set[str] = field(default_factory=set)

    @property
    def opened(self) -> bool:
        return _OPENS.match(self.text) is not None


def messages(text: str) -> Iterator[str]:
    """Each message of a log in the order of their beginnings, up to 600 printable characters each.

    `text` may be what `dmesg`, the journal, a syslog file or /dev/kmsg has. Never raises.
    """
    return _joined(_lines(text))


def joined(lines: Iterable[str]) -> tuple[str, ...]:
    """The same of lines without times, as reports of older versions hold them."""
    return tuple(_joined((line, False) for line in lines))


def devices(line: str) -> frozenset[str]:
    """The PCI addresses in it, without function: "0000:01:00"."""
    found = (match.groups() for match in _DEVICE.finditer(line.lower()))
    return frozenset(f"{int(domain, 16):04x}:{bus}:{slot}" for domain, bus, slot in found)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line without its prefix, and whether `dmesg` marked it as one that goes on."""
    stamped = False
    for raw in text.split("\n"):
        # What follows the cut of a line is of no use to anybody, and may be of any length
        line, first = raw[: 4 * MOST_LETTERS], True
        for part in _IN_ONE_LINE.split(line):
            bare = _bare(part)
            has_stamp = len(bare) < len(part.lstrip())
            stamped = stamped or has_stamp
            yield _plain(bare), not first or (stamped and not has_stamp and part[:1].isspace())
            first = False


def _bare(line: str) -> str:
    line = line.lstrip()
    for _ in range(_MOST_STAMPS):
        shorter = _STAMP.sub("", line, count=1) if _STAMP.match(line) else line
        if shorter == line:
            break
        line = shorter
    return line


def _plain(line: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in line).strip()


def _joined(lines: Iterable[tuple[str, bool]]) -> Iterator[str]:
    open_: _Message | None = None
    for line, indented in lines:
        if open_ is not None and _continues(open_, line, indented):
            rest = line.removeprefix(_TAG).strip() if open_.text.startswith(_TAG) else line
            open_.text = f"{open_.text} {rest}"
            open_.lines += 1
            open_.devices |= devices(line)
            continue
        if open_ is not None:
            yield _cut(open_.text)
        open_ = _Message(line, devices=set(devices(line)))
    if open_ is not None:
        yield _cut(open_.text)


def _cut(text: str) -> str:
    return text[:MOST_LETTERS].rstrip()


def _continues(message: _Message, line: str, indented: bool) -> bool:
    if not line or not message.text or message.lines >= _MOST_LINES:
        return False
    theirs = devices(line)
    if message.devices and not theirs <= message.devices:
        return False
    rest = line.removeprefix(_TAG).lstrip()
    if _BEGINS.match(rest) and line.startswith(_TAG):
        return False
    if indented:
        return True
    if not (message.opened and line.startswith(_TAG)):
        return False
    ended = message.text.endswith((".", "!"))
    return not ended or _GOES_ON.match(rest) is not None
