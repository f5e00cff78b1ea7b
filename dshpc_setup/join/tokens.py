"""The tokens that a cluster has given out, in a file for its owner alone: of secrets it holds digests."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from dshpc_setup import codec
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files import atomic, locks
from dshpc_setup.join.token import ID_BYTES, SECRET_BYTES
from dshpc_setup.project.folder import OWN, Project

SCHEMA = "dshpc.join-tokens/1"
FOLDER = f"{OWN}/join"
FILE = f"{FOLDER}/tokens.json"
_LOCK_S = 10.0
_KEPT_S = 7 * 86400.0  # why a token is refused can be said for so long after its end
Refusal = Literal["unknown", "expired", "revoked", "used"]


@dataclass(frozen=True)
class Given:
    """A token; `until` in seconds of the epoch, `used_by` who joined with it, in their
    order: nodes, and at which addresses."""

    id: str
    digest: str  # SHA-256 of the secret, hex
    until: float
    once: bool = False
    revoked: bool = False
    used_by: tuple[str, ...] = ()

    def lives(self, now: float) -> bool:
        """Whether one more machine can join with it."""
        return not self.revoked and now < self.until and not (self.once and self.used_by)

    def refusal(self, now: float, node: str) -> Refusal | None:
        """Why `node` gets nothing for it. The one that has used it already may come again."""
        if self.revoked:
            return "revoked"
        if now >= self.until:
            return "expired"
        return "used" if self.once and set(self.used_by) - {node} else None


@dataclass(frozen=True)
class _All:
    tokens: tuple[Given, ...] = ()


def made(project: Project, now: float, ttl_s: float, *, once: bool) -> tuple[Given, str]:
    """A new one and its secret; what ended long ago is forgotten. DshpcError where it cannot be written."""
    secret = secrets.token_hex(SECRET_BYTES)
    token = Given(secrets.token_hex(ID_BYTES), _digest(secret), now + ttl_s, once)
    with _changed(project) as change:
        change(lambda all_: (*(it for it in all_ if now < it.until + _KEPT_S), token))
    return token, secret


def revoke(project: Project, now: float, only: str | None = None) -> tuple[str, ...]:
    """All that live, or that one however it is, and their ids: nobody joins with them any more."""
    all_ = read(project)
    gone = tuple(it.id for it in all_ if (it.lives(now) if only is None else it.id == only))
    with _changed(project) as change:
        change(lambda all_: tuple(replace(it, revoked=it.revoked or it.id in gone) for it in all_))
    return gone


def use(project: Project, number: str, node: str, now: float) -> Refusal | None:
    """The node joins with it: of two at once, one does."""
    refused: list[Refusal | None] = ["unknown"]

    def used(all_: tuple[Given, ...]) -> tuple[Given, ...]:
        kept = []
        for each in all_:
            if each.id == number:
                refused[0] = each.refusal(now, node)
                if refused[0] is None and node not in each.used_by:
                    each = replace(each, used_by=(*each.used_by, node))  # noqa: PLW2901
            kept.append(each)
        return tuple(kept)

    with _changed(project) as change:
        change(used)
    return refused[0]


def known(project: Project, number: str, secret: str) -> Given | None:
    """The token with this id and secret, in whatever state; None where there is none."""
    for each in read(project):
        if each.id == number and hmac.compare_digest(each.digest, _digest(secret)):
            return each
    return None


def read(project: Project) -> tuple[Given, ...]:
    """Raises DshpcError for a file that is damaged."""
    path = project.folder / FILE
    try:
        return codec.from_json(_All, foreign.value(path.read_text("utf-8")), SCHEMA).tokens
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise DshpcError(
            f"{path} cannot be read.",
            str(error),
            (Fix("Remove it: tokens that were given are worth nothing then", f"rm {path}"),),
        ) from None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_Change = Callable[[Callable[[tuple[Given, ...]], tuple[Given, ...]]], None]


@contextlib.contextmanager
def _changed(project: Project) -> Iterator[_Change]:
    path = project.folder / FILE
    atomic.make_folder(path.parent, project.owner, mode=0o700)
    with locks.held(path.with_suffix(".lock"), _LOCK_S) as ours:
        if not ours:
            raise DshpcError(
                "Another command changes the tokens.", f"{path} is locked.", ("Run this again.",)
            )

        def change(how: Callable[[tuple[Given, ...]], tuple[Given, ...]]) -> None:
            text = json.dumps(codec.to_json(_All(how(read(project))), SCHEMA), indent=1)
            atomic.write_atomic(path, text + "\n", 0o600, owner=project.owner)

        yield change
