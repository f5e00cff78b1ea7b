"""Of a text what is listed: words of the vocabulary, shapes, short numbers. All else is replaced.

It is the second of two passes. The first one (rules.py) knows what a secret looks like, and gives it a
pseudonym of its form; this one knows what none looks like. What it does not know becomes "word1", the
same one for the same text wherever it stands, so that two names that were equal still are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dshpc_setup.record import shapes, vocabulary, words
from dshpc_setup.record.known import Secrets

_WORD = r"[^\W_]+"
_COMPOUND = rf"(?P<compound>{_WORD}(?:[._+~-]+{_WORD})*)"
_PHONE = r"(?P<phone>(?<![^\W_])\+?\(?\d[\d()]{0,20}(?:[ \t./()-]{1,3}\d{1,20}){1,7}(?![^\W_]))"
_OTHER = r"(?P<other>[^\x00-\x7f])"
_PARTS = re.compile(rf"{_WORD}|[\W_]+")
_PATTERN = re.compile("|".join((*shapes.SHAPES, _PHONE, _COMPOUND, _OTHER)))
_PSEUDONYM = re.compile(r"(?:host|user|job|context|volume|removed|folder|site)-\d{1,6}(?![^\W_])")
_MADE_NAME = re.compile(r"(?i:host-\d{1,6}(?:\.site-\d{1,6}\.example)?|site-\d{1,6}\.example)")
_DASHED_ADDRESS = re.compile(r"(?<!\d)\d{1,3}(?:[-_]\d{1,3}){3}(?!\d)")  # ip-10-1-2-3
_OF_A_CODE = re.compile(r"[A-Za-z]?\d*")
_OF_A_LONG_CODE = re.compile(r"[A-Za-z]?\d*[A-Za-z]?|[A-Fa-f0-9p]{2,3}")
_NEUTRAL = frozenset("°µ·×–—…✓→←≥≤’‘“”")
# The last labels of names of hosts; the names of files end otherwise
_TOP = re.compile(
    r"(?i:com|org|net|edu|gov|mil|biz|local|localdomain|lan|home|internal|intranet|corp|private"
    r"|test|example|invalid|onion|arpa|cloud|tech|science|health|bio|hospital|clinic|uni|io|ai|eu|uk|us"
    r"|(?!so|sh|py|md|gz|ko|pl|ps|id|rs|cc|pm|in|am|my)[a-z]{2})"
)
# What Slurm, the kernel and this program count; from their format strings
_COUNTED = re.compile(
    r"(?i:\b(?:jobid|arrayjobid|stepid|pid|ppid|tgid|gid|realmemory|allocmem|freemem|memspeclimit|tmpdisk"
    r"|mem|memory|cfgtres|alloctres|weight|priority|port|slurmctldport|slurmdport|maxjobcount|maxarraysize"
    r"|maxjobid|firstjobid|defmempercpu|maxmempercpu|defmempernode|maxmempernode|bf_\w{3,24}|batch_sched_delay"
    r"|[a-z]{2,20}timeout|memlock|nofile|size|rss|total|free|used|avail|limit|vm|oom_score_adj|location_id"
    r"|lines|[a-z]{3,12}[-_]?mib|[a-z]{3,12}_bytes|process|node_?rank)"
    r"[ \t]?[=:][ \t]?[\"']?|\bprocess |\bpid |\bjob |\buid[ =]|/run/user/|\bthan |\bonly "
    r"|\bat (?:least|most) |\bSXid \(PCI:[\da-f:.]{4,16}\): |\bamdgpu: )\Z"
)


class Listed:
    """Judges each piece of a text; `known` gives the pseudonyms."""

    def __init__(self, known: Secrets) -> None:
        self.known = known
        self._judged: dict[tuple[str, bool], str] = {}

    def text(self, text: str, *, numbers: bool = False) -> str:
        """The text with all that is not listed replaced; `numbers`: they are a kernel's or a driver's."""

        def one(found: re.Match[str]) -> str:
            return _JUDGE[found.lastgroup or "compound"](self, found, numbers)

        return _PATTERN.sub(one, text)

    # -- shapes ------------------------------------------------------------------------------

    def _made(self, found: re.Match[str], numbers: bool) -> str:
        text = found[0]
        if self.known.is_made(text):
            return text
        return self._compound_of(text, numbers)

    def _part(self, found: re.Match[str], _numbers: bool) -> str:
        return found[0]  # the first pass has replaced each of these

    def _plain(self, found: re.Match[str], _numbers: bool) -> str:
        return found[0]

    def _dotted(self, found: re.Match[str], numbers: bool) -> str:
        text = found[0]
        if found["debian"]:  # a package's version: no address, birthday or telephone has that end
            return text
        parts = text.lstrip("v").split(".")
        before = found.string[max(0, found.start() - 24) : found.start()]
        if len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts):
            if (
                words.kept_ipv4(text.lstrip("v"))
                or self.known.is_made(text)
                or self.known.release.startswith(text)
                or numbers
                or re.search(r"(?i)version\W{0,6}$|firmware\W{0,6}$|vbios\W{0,6}$", before)
            ):
                return text
            return self._number(text)
        if len(parts) == 3 and len(parts[2]) == 4 and parts[2].startswith("19") and not numbers:
            return self._number(text)  # a birthday
        digits = sum(map(len, parts))
        measured = len(parts) == 2 and len(parts[1]) > 3  # where somebody is, to the metre
        if measured and not numbers and not re.search(r"\[ *$", before):
            return self._number(text)
        like_phone = len(parts) == 3 and (digits > 9 or (len(parts[0]) > 1 and parts[0][0] == "0"))
        if like_phone and not numbers and not re.fullmatch(r"\d{1,2}\.\d{1,2}\.\d+", text):
            return self._number(text)
        return text

    def _time(self, found: re.Match[str], _numbers: bool) -> str:
        year = found["year"]
        if year and not (year == "1970" or "2000" <= year <= "2199"):  # a birthday
            return self._number(found[0])
        return found[0]

    def _phone(self, found: re.Match[str], numbers: bool) -> str:
        text = found[0]
        groups = re.findall(r"\d+", text)
        digits = sum(map(len, groups))
        plus = text.startswith("+")
        if not numbers and _DASHED_ADDRESS.fullmatch(text):
            return self._number(text)
        if not numbers and digits >= 7 and (plus or max(map(len, groups)) >= 3):
            return self._number(text)
        return re.sub(r"\d+", lambda one: self._digits(one[0], found, one, numbers), text)

    def _digits(self, text: str, found: re.Match[str], one: re.Match[str], numbers: bool) -> str:
        start = found.start() + one.start()
        return self._counted(text, found.string[max(0, start - 40) : start], numbers)

    def _counted(self, text: str, before: str, numbers: bool) -> str:
        if numbers or len(text) <= 3 or self.known.is_made(text):
            return text
        if len(text) <= 15 and _COUNTED.search(before):
            return text
        if len(text) == 4 and (text[:2] in ("19", "20") or before.endswith((":", "="))):
            return text
        if len(text) == 5 and before.endswith(":") and int(text) < 65536:  # a port
            return text
        return self._number(text)

    def _other(self, found: re.Match[str], _numbers: bool) -> str:
        return found[0] if found[0] in _NEUTRAL else "?"

    # -- words -------------------------------------------------------------------------------

    def _compound(self, found: re.Match[str], numbers: bool) -> str:
        text = found[0]
        if text.isdecimal() and text.isascii():
            start = found.start()
            return self._counted(text, found.string[max(0, start - 40) : start], numbers)
        return self._compound_of(text, numbers)

    def _compound_of(self, text: str, numbers: bool) -> str:
        key = (text, numbers)
        if key not in self._judged:
            self._judged[key] = self._judge(text, numbers)
        return self._judged[key]

    def _judge(self, text: str, numbers: bool) -> str:
        if self.known.is_made(text):
            return text
        if ".so" in text:  # a library has one name, in a list of a driver's as on the path to it
            numbers = False
        last = text.rpartition(".")[2]
        labels = text.rpartition(".")[0]
        if labels and not labels.replace(".", "").isdecimal() and _TOP.fullmatch(last):
            if words.is_public(text) or text.lower() in words.LOCAL_HOSTS | {"proxy.invalid"}:
                return text
            if _MADE_NAME.fullmatch(text) or text.startswith(
                ("com.docker.", "org.opencontainers.")
            ):
                return "".join(self._piece(part, numbers) for part in _PARTS.findall(text))
            return self._word(text)
        told = []
        at = 0
        while at < len(text):
            if (made := _PSEUDONYM.match(text, at)) and self.known.is_made(made[0]):
                told.append(made[0])
                at = made.end()
                continue
            found = _PARTS.match(text, at)
            assert found is not None
            told.append(self._piece(found[0], numbers))
            at = found.end()
        return self._closed(text, told, numbers)

    def _closed(self, text: str, told: list[str], numbers: bool) -> str:
        """Beside a word that is not known a number is no number: "MRN-4471"."""
        result = "".join(told)
        if result == text:
            if not numbers and (_is_code(told) or _DASHED_ADDRESS.search(text)):
                return self._word(text)
            address = re.search(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])", text)
            if address and not words.kept_ipv4(address[0]) and not self.known.is_made(address[0]):
                return result if self.known.release.startswith(address[0]) else self._word(text)
            return text
        if numbers or ".so." in text:
            return result
        return "".join(
            self._number(piece) if piece.isdecimal() and len(piece) > 2 else piece for piece in told
        )

    def _piece(self, text: str, numbers: bool) -> str:
        if not text[0].isalnum() or self._is_kept(text, numbers):
            return text
        return self._word(text)

    def _is_kept(self, text: str, numbers: bool) -> bool:
        if not text.isascii():
            return False
        if len(text) == 1 or self.known.is_made(text):
            return True
        if vocabulary.is_listed(text, of_kernel=numbers):
            return True
        if text.isdecimal():
            return numbers or len(text) <= 4
        if shapes.MODEL.fullmatch(text) or shapes.ROUND.fullmatch(text):
            return True
        if numbers and shapes.OF_KERNEL.fullmatch(text):
            return True
        return text.startswith(("0x", "0X")) and len(set(text[2:])) == 1

    def _word(self, text: str) -> str:
        return self.known.name("word", text.lower())

    def _number(self, text: str) -> str:
        return self.known.name("number", text)


def _is_code(pieces: list[str]) -> bool:
    """Whether it is letters and numbers alone that nobody can read: "P-17-4431"."""
    parts = [piece for piece in pieces if piece[0].isalnum()]
    digits = sum(char.isdecimal() for part in parts for char in part)
    if digits < 5 or len(parts) < 2:
        return False
    form = _OF_A_CODE if len(parts) < 4 else _OF_A_LONG_CODE
    return all(form.fullmatch(part) for part in parts)


_JUDGE: dict[str, Callable[[Listed, re.Match[str], bool], str]] = {
    "escape": Listed._plain,
    "uuid": Listed._made,
    "part": Listed._part,
    "engine": Listed._made,
    "mac": Listed._made,
    "guid": Listed._made,
    "ipv6": Listed._plain,
    "dotted": Listed._dotted,
    "time": Listed._time,
    "pci": Listed._plain,
    "product": Listed._plain,
    "sized": Listed._plain,
    "code": Listed._plain,
    "phone": Listed._phone,
    "compound": Listed._compound,
    "other": Listed._other,
}
