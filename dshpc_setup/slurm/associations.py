"""Who may run jobs, as slurmdbd keeps it: an association of each user with an account of the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

ACCOUNT = "users"
"""Whose everybody is who has been seen, unless somebody has given them another one."""

# sacctmgr takes a comma, brackets and '=' for its own, and quotes away
_PLAIN = re.compile(r"[^\s,=\"'\[\]]+")


def nameable(names: Iterable[str]) -> tuple[str, ...]:
    """Of these login names the ones that sacctmgr can be told."""
    return tuple(name for name in names if _PLAIN.fullmatch(name))


def list_argv(cluster: str) -> list[str]:
    return ["sacctmgr", "-nP", "list", "assoc", f"cluster={cluster}", "format=account,user"]


def add_account_argv(cluster: str) -> list[str]:
    words = ("description=everybody", "organization=dshpc")
    return ["sacctmgr", "-iQ", "add", "account", f"name={ACCOUNT}", f"cluster={cluster}", *words]


def add_users_argv(cluster: str, names: Sequence[str]) -> list[str]:
    named = f"name={','.join(names)}"
    return ["sacctmgr", "-iQ", "add", "user", named, f"account={ACCOUNT}", f"cluster={cluster}"]


def close_lost_argv(cluster: str) -> list[str]:
    """Ends in the database the jobs of which slurmctld knows nothing any more, without time of use; it asks
    unless it is told not to (`-i`), and without a terminal for ever (24.11.5)."""
    return ["sacctmgr", "-i", "show", "runawayjobs", f"cluster={cluster}"]


def parse(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Accounts and users of lines ACCOUNT|USER; ValueError for what is none. A user stands once for each
    account, an account once without a user."""
    rows = [line.split("|") for line in text.splitlines() if line.strip()]
    if any(len(row) != 2 for row in rows):
        raise ValueError(text[:200])
    return frozenset(row[0] for row in rows), frozenset(row[1] for row in rows if row[1])


def is_up(text: str) -> bool:
    """Of `sacctmgr ping`: "slurmdbd(primary) at NODE is UP", which it is with its database alone."""
    return re.search(r"(?m)^slurmdbd\(primary\) at \S+ is UP\s*$", text) is not None
