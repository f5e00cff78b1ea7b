"""What is known of one recording: the secrets that were seen in it, and what each is called."""

from __future__ import annotations

import re

from dshpc_setup.record import patterns, words
from dshpc_setup.record.pseudonyms import Kind, Pseudonyms

_MOST_LEARNED = 5000


class Secrets:
    """Grows while everything is looked through (`learning`); after that it gives pseudonyms."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.learning = False
        self.domains: set[str] = set()
        self.homes: dict[str, str] = {}
        self.kept: set[str] = set()  # names of hosts that tell nothing
        self.ids: set[int] = set()
        self.uuids: dict[str, None] = {}
        self.learned: dict[str, Kind] = {}  # what to replace wherever it stands
        self._names = Pseudonyms()
        self._pattern: re.Pattern[str] | None = None

    def pattern(self) -> re.Pattern[str]:
        """All that is to be replaced in a text."""
        if self._pattern is None:
            self._pattern = patterns.compiled(self.homes, self.domains, self.learned)
        return self._pattern

    def extent(self) -> int:
        """Greater with whatever is taken in, for nothing is forgotten; until then a text becomes the same."""
        own = (self.domains, self.homes, self.kept, self.ids, self.uuids, self.learned)
        return sum(map(len, own)) + self._names.extent()

    def counts(self) -> dict[str, int]:
        return self._names.counts()

    def is_made(self, text: str) -> bool:
        """Whether the text is a pseudonym, or a number of all the same digits, which names nothing."""
        plain = text.replace("-", "").replace(":", "").replace("_", "")
        return self._names.is_made(text) or (len(plain) >= 8 and len(set(plain)) == 1)

    def seen(self, text: str) -> None:
        """This text is there: no pseudonym is to be the same."""
        self._names.seen(text)

    def name(self, kind: Kind, original: str) -> str:
        if self.learning:
            self._names.seen(original)
            return original
        return self._names.of(kind, original)

    def learn(self, text: str, kind: Kind) -> None:
        if kind in ("host", "user", "context", "job", "volume") and not words.is_telling(text):
            return
        if kind == "secret" and not words.is_findable(text):
            return
        if text not in self.learned and len(self.learned) < _MOST_LEARNED:
            self.learned[text] = kind
            self._pattern = None

    def learn_host(self, name: str) -> None:
        name = name.strip().rstrip(".").lower()
        if not name or patterns.ADDRESS.fullmatch(name) or words.is_public(name):
            return
        if name in words.LOCAL_HOSTS or name in words.COMPANIONS or name in self.kept:
            return
        short, _, domain = name.partition(".")
        if domain and domain not in words.DOMAINS and domain not in self.domains:
            self.domains.add(domain)
            self._pattern = None
        self.learn(short, "host")

    def learn_home(self, home: str) -> None:
        home = home.rstrip("/")
        if home.count("/") < 2 or home in ("/var/root", "/var/empty"):
            return
        owner = home.rpartition("/")[2]
        self.learn(owner, "user")
        if not patterns.KNOWN_HOME.fullmatch(home):
            self.homes[home] = owner
            self._pattern = None
