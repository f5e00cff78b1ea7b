"""How the text of a setting is read, wherever it stood: a value, or ValueError whose words follow the text.

"prefix = 'A b' must be 1 to 40 lower-case letters": the words continue a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dshpc_setup.errors import DshpcError
from dshpc_setup.settings import lent, places


class BadItemError(ValueError):
    """Of a list or of several lines one that cannot be used: its index, and words that follow it.

    "devices, item 2 is 'a', which is neither an index nor ...": the words continue a sentence.
    """

    def __init__(self, index: int, words: str) -> None:
        super().__init__(words)
        self.index = index


def choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            import difflib  # only for a mistake: each start of the container imports this module

            near = difflib.get_close_matches(text, choices, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}{hint}")
        return text

    return parse


def prefix(text: str) -> str:
    # It becomes a container name, a host name, a Slurm node name and a cluster name.
    if not re.fullmatch(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?", text):
        raise ValueError(
            "must be 1 to 40 lower-case letters, digits and '-', beginning with a letter "
            "and not ending in '-'"
        )
    if text == "default":
        raise ValueError("is Slurm's keyword for default values, and cannot name a node")
    return text


def _items(text: str) -> list[tuple[int, str]]:
    """The items of a list, each with its index as it was written; empty ones count as not there."""
    items = ((index, item.strip()) for index, item in enumerate(text.split(",")))
    return [(index, item) for index, item in items if item]


def devices(text: str) -> tuple[str, ...]:
    items = _items(text)
    first: dict[str, int] = {}
    for index, item in items:
        if not re.fullmatch(r"[0-9]{1,3}|(?:GPU|MIG)-[0-9A-Za-z/-]+", item):
            raise BadItemError(
                index, f"is {item!r}, which is neither an index nor a GPU-/MIG- UUID"
            )
        if item in first:
            raise BadItemError(index, f"is {item}, and so is item {first[item] + 1}")
        first[item] = index
    return tuple(first)


_FEWEST_PROCESSES = 256  # Slurm with its supervisor, and a first job


def count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError("must be a whole number of 0 or more")
    return int(text)


def processes(text: str) -> int:
    found = count(text)
    if 0 < found < _FEWEST_PROCESSES:
        raise ValueError(f"must be 0 (no limit) or at least {_FEWEST_PROCESSES}")
    return found


_MOST_TASKS = 4_000_001  # slurm.conf(5), MaxArraySize
_FEWEST_JOBS, _MOST_JOBS = 10, 10_000_000


def array_limit(text: str) -> int:
    found = count(text)
    if not 1 <= found <= _MOST_TASKS:
        raise ValueError(f"must be a number from 1 to {_MOST_TASKS}")
    return found


def job_limit(text: str) -> int:
    found = count(text)
    if not _FEWEST_JOBS <= found <= _MOST_JOBS:
        raise ValueError(f"must be a number from {_FEWEST_JOBS} to {_MOST_JOBS}")
    return found


def age(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,6}[mhd]|0", text):
        raise ValueError("must be a time such as 30d, 12h or 90m, or 0")
    return text


_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def wait(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,5}[smhd]|none", text):
        raise ValueError("must be a time such as 1h, 30m or 7d, or none")
    return text


def seconds(text: str) -> int:
    """Of an age or a wait: "30d" -> 2592000."""
    return 0 if text == "0" else int(text[:-1]) * _UNIT_S[text[-1]]


def age_or_off(text: str) -> str:
    if text == "off":
        return text
    if not re.fullmatch(r"[1-9][0-9]{0,5}[mhd]", text):
        raise ValueError("must be a time such as 2h, 90m or 1d, or off")
    return text


def age_s(text: str) -> float:
    """Of such a text, in seconds; 0 for off."""
    return 0.0 if text == "off" else float(seconds(text))


def log_size(text: str) -> str:
    if text.lower() == "engine":
        return "engine"
    if text.lower().endswith("k"):
        raise ValueError("must be 1m at least, or engine")
    return size(text)


def size(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,6}[kmg]", text.lower()):
        raise ValueError("must be a size such as 512m or 2g")
    return text.lower()


def profile(text: str) -> str:
    if text in ("", "none"):
        return ""
    from dshpc_setup.machine.profiles import parse_profile

    parse_profile(text)
    return text


MOST_NODES = 1024
REMOVED = "removed"
"""In a list of nodes the place of one that is not there: those behind it keep their names."""


def nodes(text: str) -> int | tuple[str, ...]:
    """How many nodes, or what each of them simulates, "" for one without GPUs; `REMOVED` of one that is
    not there, never the first or the last."""
    if re.fullmatch(r"[0-9]{1,9}", text.strip(), re.ASCII):
        if not 1 <= int(text) <= MOST_NODES:
            raise ValueError(f"must be a number from 1 to {MOST_NODES}")
        return int(text)
    found = []
    for index, item in _items(text):
        if item == REMOVED:
            if index == 0:
                raise BadItemError(
                    index, "removes the controller's own node, without which none is"
                )
            found.append(item)
            continue
        try:
            found.append(profile(item))
        except DshpcError as error:
            raise BadItemError(
                index,
                f"is {item!r}, neither a number of nodes nor what one simulates: h100:8, mig, "
                f"none ({error.brief.rstrip('.')})",
            ) from None
    if not found:
        raise ValueError("names no node: a number such as 4, or what each node simulates")
    if len(found) > MOST_NODES:
        raise ValueError(f"must be {MOST_NODES} nodes at most")
    while found[-1] == REMOVED:
        found.pop()
    return tuple(found)


def folder(text: str) -> str:
    if not text.strip():
        raise ValueError("names no folder")
    if any(ord(char) < 32 for char in text):
        raise ValueError("holds a control character")
    return text


def mounts(text: str) -> tuple[str, ...]:
    """Folders, ":ro" behind those for reading only; one in another is a mount of its own."""
    found: dict[str, tuple[str, int]] = {}
    for index, item in _items(text):
        try:
            mount = places.mount(item)
        except ValueError as error:
            raise BadItemError(index, f"is {item!r}, {error}") from None
        folder = places.folder_of(mount)
        if folder in found:
            raise BadItemError(index, f"is {item!r}, and so is item {found[folder][1] + 1}")
        found[folder] = mount, index
    return tuple(mount for mount, _ in found.values())


def toolkits(text: str) -> tuple[str, ...]:
    """Folders of toolkits, each where jobs are to see it."""
    found: dict[str, int] = {}
    for index, item in _items(text):
        if not lent.fits(item):
            raise BadItemError(index, f"is {item!r}, no absolute path where a toolkit can lie")
        if item in found:
            raise BadItemError(index, f"is {item!r}, and so is item {found[item] + 1}")
        found[item] = index
    return tuple(found)


def image(text: str) -> str:
    if len(text) > 255 or not re.fullmatch(_IMAGE, text, re.ASCII):
        raise ValueError("is not an image name such as debian:trixie-slim")
    return text


_NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
# As the registries' own grammar has it: host/path:tag@digest, or the id of an image
_IMAGE = (
    rf"(?:{_HOST}/)?{_NAME}(?:/{_NAME})*(?::\w[\w.-]{{0,127}})?(?:@[a-z0-9]+:[0-9a-f]{{32,128}})?"
    r"|sha256:[0-9a-f]{64}"
)


def mirror(text: str) -> str:
    # It becomes a line of sources.list, which is cut at spaces
    if re.match(r"[a-z]+://[^/]*@", text):
        raise ValueError("holds a login, which would stay readable in the image")
    if text and not re.fullmatch(rf"https?://{_HOST}(?:/[A-Za-z0-9._~%+=:@,/-]*)?", text):
        raise ValueError("is not an address such as http://mirror.example.org/debian")
    return text


def lines(text: str) -> str:
    # What ends a line for some of its readers and not for others must be in none
    for index, line in enumerate(text.split("\n")):
        if char := next((it for it in line if not it.isprintable() and it != "\t"), None):
            raise BadItemError(
                index, f"holds a character that cannot be printed (U+{ord(char):04X})"
            )
    return text.rstrip("\n")


def sharing(text: str) -> str:
    if text in ("none", "mps"):
        return text
    found = re.fullmatch(r"shard:([1-9][0-9]{0,2})", text)
    if found is None or not 2 <= int(found[1]) <= 128:
        raise ValueError("must be none, mps, or shard:N with N from 2 to 128 jobs for each GPU")
    return text


# As Slurm reads MaxTime: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]
_TIME = re.compile(
    r"\d{1,7}|\d{1,6}:\d{1,2}(?::\d{1,2})?|\d{1,5}-\d{1,3}(?::\d{1,2}){0,2}", re.ASCII
)


def partitions(text: str) -> tuple[tuple[str, str], ...]:
    """(name, longest time as Slurm writes it) each; INFINITE without one."""
    found: list[tuple[str, str]] = []
    first: dict[str, int] = {}
    for index, item in _items(text):
        try:
            name, longest = _partition(item)
        except ValueError as error:
            raise BadItemError(index, f"is {item!r}, {error}") from None
        if name.lower() in first:
            raise BadItemError(
                index, f"is {item!r}, and item {first[name.lower()] + 1} has that name already"
            )
        first[name.lower()] = index
        found.append((name, longest))
    return tuple(found)


def _partition(item: str) -> tuple[str, str]:
    name, given, longest = (part.strip() for part in item.partition("="))
    if given and not longest:
        raise ValueError(
            f"which names no time limit: {name}=1:00:00 for an hour at most, or {name} for no limit"
        )
    if longest and longest.lower() != "infinite" and not _TIME.fullmatch(longest):
        raise ValueError(
            "whose time limit is not a time such as 30 (minutes), 1:00:00 or 7-0 (days)"
        )
    is_time = longest and longest.lower() != "infinite"
    if is_time and not longest.strip("0:-"):
        raise ValueError("whose time limit is zero: no job could run there")
    try:
        return identifier(name), longest if is_time else "INFINITE"
    except ValueError as error:
        raise ValueError(f"whose name {error}") from None


def identifier(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", text):
        raise ValueError("must be letters, digits, '-' and '_', beginning with a letter")
    if text.lower() == "default":
        raise ValueError("is Slurm's keyword for default values, and cannot name a partition")
    return text
