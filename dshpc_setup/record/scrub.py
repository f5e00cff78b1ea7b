"""Text and JSON without what identifies people and machines, and still readable by every parser.

A thing has one pseudonym everywhere, and of the same form: a UUID stays one, a serial number keeps
its length, a 64-bit id is the same number in decimal and in hexadecimal. Versions, PCI addresses,
sizes and device ids stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from dshpc_setup.record import patterns, places, words
from dshpc_setup.record.known import Secrets
from dshpc_setup.record.listed import Listed
from dshpc_setup.record.rules import LEAST_ID, Rules

_DEEPEST = 60
_SHORT = 200  # longer texts hardly come twice
_LIKE_OURS = re.compile(r"\b(?:word|number)\d{1,6}\b", re.IGNORECASE)

# Signs that are no ASCII, as JSON and YAML write them: their letters are no part of a word
_ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9A-Fa-f]{4}|\\x[89A-Fa-f][0-9A-Fa-f]|\\U[0-9A-Fa-f]{8}")


class Scrubber:
    """Scrubs all that belongs to one recording.

    What is named to it (`hosts`, `users`, `homes`, `secrets`) is replaced wherever it stands; a host
    in `kept` stays. `learn` everything first: then what is a serial number in one file is known to
    be one in the others.
    """

    def __init__(
        self,
        *,
        hosts: Iterable[str] = (),
        users: Iterable[str] = (),
        homes: Iterable[str] = (),
        uid: int | None = None,
        release: str = "",
        secrets: Iterable[str] = (),
        kept: Iterable[str] = (),
    ) -> None:
        self._known = Secrets(release)
        self._known.kept.update(kept)
        for secret in secrets:
            self._known.learn(secret, "secret")
        self._rules = Rules(self._known)
        self._listed = Listed(self._known)
        self._told: dict[tuple[str, bool, bool], str] = {}  # with what was known at `_extent`
        self._extent = -1
        for host in hosts:
            self._known.learn_host(host)
        for user in users:
            self._known.learn(user, "user")
        for home in homes:
            self._known.learn_home(home)
        if uid is not None:
            self.uid(uid)

    def counts(self) -> dict[str, int]:
        """How many different things were replaced, by what they are."""
        return self._known.counts()

    def learn(self, value: Any, key: str = "") -> None:
        """Take in a text or a JSON value: what it shows to be a secret is one elsewhere too.

        `key`: under which it stands, or each text of a list.
        """
        self._known.learning = True
        try:
            self.value(value, key)
        finally:
            self._known.learning = False

    def text(self, text: str, *, numbers: bool = False) -> str:
        """The text with all replaced that is not listed.

        `numbers`: it is a kernel's or a driver's, whose numbers are told whatever their length.
        """
        if len(text) > _SHORT:
            return self._text(text, numbers)
        key = (text, numbers, self._known.learning)
        if (extent := self._known.extent()) != self._extent:
            self._told.clear()
            self._extent = extent
        if key not in self._told:  # if it adds to what is known, the next one clears it
            self._told[key] = self._text(text, numbers)
        return self._told[key]

    def _text(self, text: str, numbers: bool) -> str:
        known = self._rules.text(_ESCAPED.sub("?", text) if "\\" in text else text)
        if self._known.learning:
            for like_ours in _LIKE_OURS.findall(text):
                self._known.seen(like_ours)
            return known
        return self._listed.text(known, numbers=numbers)

    def host(self, name: str) -> str:
        """Of a name that is surely a host's: "gpu01", "gpu01.cluster.example"."""
        return self._rules.host(name)

    def user(self, name: str) -> str:
        """Of a name that is surely a user's."""
        return self._rules.user(name)

    def job(self, name: str) -> str:
        """Of a name that is surely a job's."""
        return self._rules.job(name)

    def folder(self, path: str) -> None:
        """A folder whose name is nobody's business: another one stands for all of its path."""
        self._known.learn(path, "folder")

    def secret(self, text: str) -> None:
        """A password, wherever it stands; a word or a number that may mean something else stays."""
        self._known.learn(text, "secret")

    def volume(self, name: str) -> None:
        """The name of a volume, wherever it stands."""
        self._known.learn(name, "volume")

    def registry(self, host: str) -> None:
        """The name of a host, wherever it stands."""
        self._known.learn_host(host)

    def value(self, value: Any, key: str = "", deep: int = 0, *, numbers: bool = False) -> Any:
        """The JSON value with everything replaced, in keys too."""
        if deep > _DEEPEST:
            return None
        if isinstance(value, dict):
            if "DockerRootDir" in value or {"ServerVersion", "NCPU"} <= value.keys():
                return self._engine_info(value, deep)
            return {
                self.text(str(name)): self.value(item, str(name), deep + 1, numbers=numbers)
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            if any(isinstance(item, str) and " PRIVATE KEY-----" in item for item in value):
                # Lines of one text: a key block is known by its first line and by its last.
                return self.text("\n".join(map(str, value))).split("\n")
            return [self.value(item, key, deep + 1, numbers=numbers) for item in value]
        if isinstance(value, str):
            return self._string(value, key, numbers)
        if type(value) is int and re.fullmatch(words.SECRET_KEYS, key):
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and value >= LEAST_ID:
            if re.fullmatch(words.SERIAL_KEYS, key):
                self._known.ids.add(value)
            return int(self._known.name("id", str(value))) if value in self._known.ids else value
        return value

    def _string(self, text: str, key: str, numbers: bool) -> str:
        if not text.strip():
            return text
        if re.fullmatch(words.WHOLE_KEYS, key):
            return "process"
        if re.fullmatch(words.HOST_KEYS, key):
            return self.host(text)
        if re.fullmatch(words.SERIAL_KEYS, key):
            return self._rules.serial(text, key)
        if re.fullmatch(words.SECRET_KEYS, key):
            return self._rules.secret(text)
        if re.fullmatch(words.ACCOUNTS, key) and re.fullmatch(r"[A-Za-z_][\w.-]{0,63}", text):
            return self.user(text)
        if re.fullmatch(words.JOB_KEYS, key):
            return self.job(text)
        if re.search(r"(?i)version|firmware|vbios", key) and re.fullmatch(r"[\d.]+\s*", text):
            return text
        if key in ("context", "Context") and text not in words.CONTEXTS:
            self._known.learn(text, "context")
            return self._known.name("context", text)
        return self.text(text, numbers=numbers)

    def _engine_info(self, info: dict[str, Any], deep: int) -> dict[str, Any]:
        found = places.engine_info(info)
        own: dict[str, Callable[[str], str]] = {"Name": self.host, "ID": self.engine}
        return {
            key: own[key](item)
            if key in own and isinstance(item, str) and item
            else self.value(item, key, deep + 1)
            for key, item in found.items()
        }

    def engine(self, identity: str) -> str:
        """Of an engine's id, which has had two forms."""
        if re.fullmatch(patterns.UUID, identity):
            return self.text(identity)
        self._known.learn(identity, "engine")
        return self._known.name("engine", identity)

    def uid(self, number: int) -> int:
        """Of the number of a user: a name in a directory service's way."""
        return int(self._rules.user_number(str(number)))
