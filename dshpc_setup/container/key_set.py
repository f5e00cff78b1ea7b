"""The keys of auth/slurm as values: the file they stand in, and the three files of a change.

The file is a JSON Web Key Set, which Slurm reads as slurm.jwks (since 24.05): a token names the key
that signed it by its `kid`, and a key may have an end.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field, replace

from dshpc_setup.documents import foreign

LEAST_BYTES = 16  # auth/slurm refuses less
_IS_SET = re.compile(rb'\s*\{\s*"keys"\s*:')


@dataclass(frozen=True)
class Key:
    """`until` is the Unix time from which on it is refused, None for no end."""

    kid: str
    secret: bytes = field(repr=False)
    until: int | None = None


@dataclass(frozen=True)
class KeySet:
    """`current` signs; tokens of the others are still accepted, each until its end."""

    current: Key
    others: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        return (self.current, *self.others)

    @property
    def spare(self) -> Key | None:
        """The same secret under another `kid`: what the next file will sign with."""
        same = [key for key in self.others if key.secret == self.current.secret]
        return next((key for key in same if key.until is None), None)


def is_set(content: bytes) -> bool:
    """Whether a key file is a set; else it is the bytes of one key."""
    return _IS_SET.match(content) is not None


def parse(content: bytes) -> KeySet:
    """The keys of a key file; ValueError says what is wrong with it."""
    if not is_set(content):
        return KeySet(_long_enough(Key("first", content)))
    entries = foreign.value(content)["keys"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError('"keys" is no list of objects')
    keys = [_key(entry) for entry in entries]
    if len({key.kid for key in keys}) < len(keys):
        raise ValueError('two keys have the same "kid"')
    chosen = [
        key for key, entry in zip(keys, entries, strict=True) if entry.get("use") == "default"
    ]
    if len(chosen) > 1 or not keys:
        raise ValueError(f"{len(chosen)} of {len(keys)} keys are the default one")
    current = chosen[0] if chosen else keys[0]
    return KeySet(current, tuple(key for key in keys if key is not current))


def _key(entry: dict[str, object]) -> Key:
    kid, text, until = (entry.get(name) for name in ("kid", "k", "exp"))
    if not isinstance(kid, str) or not isinstance(text, str):
        raise ValueError('a key lacks "kid" or "k"')
    if until is not None and (not isinstance(until, int) or isinstance(until, bool)):
        raise ValueError(f'"exp" of the key {kid} is no whole number')
    try:
        secret = base64.b64decode(
            text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), b"-_", validate=True
        )
    except binascii.Error:
        raise ValueError(f'"k" of the key {kid} is no base64') from None
    return _long_enough(Key(kid, secret, until))


def _long_enough(key: Key) -> Key:
    if len(key.secret) < LEAST_BYTES:
        raise ValueError(f"the key {key.kid} has {len(key.secret)} bytes, less than {LEAST_BYTES}")
    return key


def to_bytes(keys: KeySet) -> bytes:
    """The file that `parse` reads, in the form of Slurm's documentation (authentication.html)."""
    entries = []
    for key in keys.keys:
        text = base64.urlsafe_b64encode(key.secret).decode().rstrip("=")
        entry: dict[str, object] = {"alg": "HS256", "kty": "oct", "kid": key.kid, "k": text}
        if key is keys.current:
            entry["use"] = "default"
        if key.until is not None:
            entry["exp"] = key.until
        entries.append(entry)
    return (json.dumps({"keys": entries}, indent=1) + "\n").encode()


def fresh(secret: bytes, kid: str) -> KeySet:
    return KeySet(Key(f"{kid}.1", secret), (Key(f"{kid}.2", secret),))


def settled(keys: KeySet, kid: str) -> KeySet:
    """The secret that signs, and no other: for a start, which nothing signed before outlives."""
    current = replace(keys.current, until=None)
    spare = keys.spare or Key(f"{kid}.2", current.secret)
    return KeySet(current, (spare,))


# The three files of a change. In each, the daemons sign under a `kid` that the file before has
# announced, so that one that has read it and one that has not yet understand each other; and by that
# `kid` it is seen which file a daemon has read.


def known(keys: KeySet, spare: Key, secret: bytes, kid: str) -> KeySet:
    """First: the daemons learn the new secret, and sign with the former, as `spare`."""
    return _signed_by(keys, spare, Key(f"{kid}.1", secret))


def in_use(keys: KeySet) -> KeySet:
    """Second: they sign with what all of them know by now."""
    new = keys.others[-1]
    return _signed_by(keys, new, _after(new))


def retired(keys: KeySet, until: int) -> KeySet:
    """Third: whatever else is known ends at `until`; the daemons themselves see to that."""
    new = keys.others[-1]
    spare = _after(new)
    former = (key for key in keys.keys if key != new)
    ended = (replace(key, until=min(key.until or until, until)) for key in former)
    return KeySet(new, (*ended, spare))


def _signed_by(keys: KeySet, key: Key, announced: Key) -> KeySet:
    return KeySet(key, (*(other for other in keys.keys if other != key), announced))


def _after(key: Key) -> Key:
    """The same secret under the next number: "x.1" -> "x.2"."""
    stem, _, number = key.kid.rpartition(".")
    return Key(f"{stem}.{int(number) + 1}", key.secret)


def without_ended(keys: KeySet, now: float) -> KeySet:
    kept = (key for key in keys.others if key.until is None or key.until >= now)
    return KeySet(replace(keys.current, until=None), tuple(kept))


def kid_of(token: bytes) -> str | None:
    """The `kid` in a token's header, "" where it names none, None where it is no token."""
    try:
        head = token.split(b".")[0]
        found = foreign.value(base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
        return str(found.get("kid", ""))
    except (ValueError, AttributeError):
        return None
