"""Lines of Slurm's configuration files as values: pure, and no line is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Begins at the beginning of a word alone: a line may be one word of a megabyte
_PAIR = re.compile(r"(?<!\w)([A-Za-z]\w*)\s*[+\-*/]?=\s*(\"[^\"]*\"?|[^\s\"]\S*)")
_DIGITS = r"[0-9]{1,18}"  # of a count: Python refuses to read numbers of thousands


@dataclass(frozen=True)
class Entry:
    """`number` counts from 1: where the line begins; keys of `values` are in lower case."""

    number: int
    line: str
    values: Mapping[str, str]


def entries(text: str) -> Iterator[Entry]:
    """Each line that says something; one that a backslash continues is one with the next."""
    began, joined = 0, ""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not began and "=" not in line and not line.rstrip().endswith("\\"):
            continue
        body = line.partition("#")[0].rstrip()
        began = began or number
        if body.endswith("\\") and number < len(lines):
            joined += body[:-1] + " "
            continue
        whole, joined = joined + body, ""
        values: dict[str, str] = {}
        for key, value in _PAIR.findall(whole):
            values.setdefault(key.lower(), value.strip('"'))
        if values:
            yield Entry(began, whole.strip(), values)
        began = 0


def last(text: str, key: str) -> str | None:
    """The value of a key that stands for itself; of several Slurm takes the last one."""
    found = None
    for entry in entries(text):
        name, value = next(iter(entry.values.items()))
        if name == key.lower():
            found = value
    return found


def has_accounting(text: str) -> bool:
    """Whether slurmctld tells a slurmdbd of its jobs, and knows users by it."""
    return "slurmdbd" in (last(text, "AccountingStorageType") or "")


def number(text: str | None) -> int | None:
    """A count as a key has it ("64"); None for what is none."""
    return int(text) if text is not None and re.fullmatch(_DIGITS, text) else None


def node(text: str, name: str) -> Entry | None:
    """The NodeName line of one node, with what NodeName=DEFAULT lines above it say."""
    defaults: dict[str, str] = {}
    for entry in entries(text):
        names = entry.values.get("nodename", "").split(",")
        if [name.upper() for name in names] == ["DEFAULT"]:
            defaults.update(entry.values)
        elif name in names:
            return Entry(entry.number, entry.line, {**defaults, **entry.values})
    return None


def applies(entry: Entry, node: str) -> bool:
    """Whether a line of gres.conf may be meant for this node; slurmd passes over those that are not.

    Without NodeName= it is for each. A name with brackets counts where what stands before them fits.
    """
    value = entry.values.get("nodename")
    if value is None:
        return True
    for name in (item.strip() for item in items(value)):
        before, bracket, _ = name.partition("[")
        if name == node or (bracket and node != before and node.startswith(before)):
            return True
    return False


def items(text: str) -> list[str]:
    """The parts between commas, those in brackets left out."""
    found, began, inside = [], 0, False
    for match in re.finditer(r"[,\[\]]", text):
        inside = match[0] == "[" or (inside and match[0] != "]")
        if match[0] == "," and not inside:
            found.append(text[began : match.start()])
            began = match.end()
    return [item for item in (*found, text[began:]) if item]


def cores(values: Mapping[str, str]) -> int:
    """Cores of a node as slurmctld counts them: sockets (all of the node's) x cores of each.

    Where a line does not say the sockets, CPUs= does (_parse_nodename in read_config.c, 24.11).
    """
    of_socket, threads = _number(values, "corespersocket"), _number(values, "threadspercore")
    boards = _number(values, "boards")
    cpus = _number(values, "cpus" if "cpus" in values else "procs")
    if "socketsperboard" in values:
        sockets = boards * _number(values, "socketsperboard")
    elif "sockets" in values:
        sockets = _number(values, "sockets")
    elif cpus % (of_socket * threads) == 0:
        sockets = cpus // (of_socket * threads)
    else:
        sockets = boards
    return sockets * of_socket


def _number(values: Mapping[str, str], key: str) -> int:
    """At least 1, as Slurm takes what is missing or 0."""
    return max(number(values.get(key)) or 1, 1)


def gres_counts(value: str) -> Mapping[str, int] | None:
    """ "gpu:h100:2,shard:8" -> {"gpu:h100": 2, "shard": 8}; None where a count is none."""
    counts: dict[str, int] = {}
    for item in value.split(","):
        if not item or item == "(null)":
            continue
        parts = item.partition("(")[0].split(":")
        found = re.fullmatch(r"(\d{1,18})([KkMmGg]?)", parts[-1]) if len(parts) > 1 else None
        name = parts[:-1] if found else parts
        if not 1 <= len(name) <= 2 or not all(name):
            return None
        factor = 1024 ** " kmg".index((found[2] or " ").lower()) if found else 1
        count = int(found[1]) * factor if found else 1
        counts[":".join(name)] = counts.get(":".join(name), 0) + count
    return counts


def summed_counts(gres: str, names: tuple[str, ...]) -> Mapping[str, int]:
    """Name -> sum of Count= over the lines of gres.conf with one of the names."""
    found: dict[str, int] = {}
    for entry in entries(gres):
        name, count = entry.values.get("name", "").lower(), entry.values.get("count", "1")
        if name in names and re.fullmatch(_DIGITS, count):
            found[name] = found.get(name, 0) + int(count)
    return found


def with_gres(text: str, name: str, gres: str) -> str:
    """A slurm.conf with another Gres= of one node, none where it is ""."""
    entry = node(text, name)
    if entry is None or entry.values.get("gres", "") == gres:
        return text
    lines = text.split("\n")
    line = re.sub(r"\s+Gres=\S*", "", lines[entry.number - 1])
    if gres:
        line = re.sub(r"(\s+State=|$)", lambda end: f" Gres={gres}{end[1]}", line, count=1)
    lines[entry.number - 1] = line
    return "\n".join(lines)


def expand(item: str, most: int) -> list[str]:
    """ "/dev/nvidia[0-1,3]" -> its three names; as it stands where it names `most` or more."""
    match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)", item)
    if match is None:
        return [item]
    found: list[str] = []
    for part in match[2].split(","):
        span = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if span is None:
            return [item]
        first, last = int(span[1]), int(span[2] or span[1])
        if len(found) + last - first >= most:
            return [item]
        width = len(span[1]) if span[1].startswith("0") else 0
        found += [f"{match[1]}{n:0{width}d}{match[3]}" for n in range(first, last + 1)]
    return found


_MOST_NODES = 65536


def node_names(text: str) -> tuple[str, ...]:
    """ "lab,lab-[2-3]": a list of Slurm's, as the nodes' names."""
    return tuple(name for item in items(text) for name in expand(item, _MOST_NODES))


def wrong(data: bytes) -> str | None:
    """The first line of a configuration file that Slurm does not read: "line 3: ...".

    Slurm ends with "Parse error in file" at a line that is neither KEY=VALUE nor Include, and at a key
    without a value. What its keys and values mean is for Slurm itself to say.
    """
    joined, began = b"", 0
    for at, line in enumerate(data.split(b"\n"), 1):
        if b"\0" in line:
            return f"line {at}: it holds a NUL character, as a text saved as UTF-16 does"
        body = line.partition(b"#")[0].rstrip()
        began = began or at
        joined += body.removesuffix(b"\\")
        if body.endswith(b"\\"):
            continue
        why = _wrong_line(joined.strip())
        if why is not None:
            return f"line {began}: {why}"
        joined, began = b"", 0
    return None


def _wrong_line(line: bytes) -> str | None:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    if not text or re.match(r"include\s", text, re.IGNORECASE):
        return None
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    if "=" not in text:
        return f"Slurm expects KEY=VALUE, and it says: {shown}"
    if re.fullmatch(r"\w+\s*=", text):
        return f"there is no value behind {shown}"
    return None


_PASSWORD = re.compile(r"(?im)^(\s*\w*Pass(?:word)?\s*=\s*)\S.*$")
_TMP_DISK = re.compile(r" ?\bTmpDisk=\d+")


def without_passwords(text: str) -> str:
    return _PASSWORD.sub(r"\1(left out)", text)


def tells_tmp_disk(text: str) -> bool:
    return _TMP_DISK.search(text) is not None


def without_tmp_disk(text: str) -> str:
    """Host and container may see other disks below /tmp."""
    return _TMP_DISK.sub("", text)
