"""Who may run jobs, as slurmdbd keeps it: an association of each user with an account of the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dshpc_setup.machine import CommandResult
from dshpc_setup.slurm.client import Answer, Slurm, read

ACCOUNT = "users"
"""Whose everybody is who has been seen, unless somebody has given them another one."""

# sacctmgr takes a comma, brackets and '=' for its own, and quotes away
_PLAIN = re.compile(r"[^\s,=\"'\[\]]+")


def nameable(names: Iterable[str]) -> tuple[str, ...]:
    """Of these login names the ones that sacctmgr can be told."""
    return tuple(name for name in names if _PLAIN.fullmatch(name))


def database(slurm: Slurm, *, deadline_s: float) -> Answer[bool]:
    """Whether slurmdbd answers and has its database; None where that cannot be asked."""
    asked = slurm.run("sacctmgr", "ping", deadline_s=deadline_s)
    told = asked.state == "present" and asked.code in (0, 1)
    return Answer(asked, is_up(asked.stdout) if told else None)


def members(
    slurm: Slurm, cluster: str, *, deadline_s: float
) -> Answer[tuple[frozenset[str], frozenset[str]]]:
    """Accounts and users that may run jobs here."""
    argv = ("sacctmgr", "-nP", "list", "assoc", f"cluster={cluster}", "format=account,user")
    asked = slurm.run(*argv, deadline_s=deadline_s)
    return Answer(asked, read(parse, asked))


def add_account(slurm: Slurm, cluster: str, *, deadline_s: float) -> CommandResult:
    argv = ("sacctmgr", "-iQ", "add", "account", f"name={ACCOUNT}", f"cluster={cluster}")
    words = ("description=everybody", "organization=dshpc")
    return slurm.run(*argv, *words, deadline_s=deadline_s)


def add_users(
    slurm: Slurm, cluster: str, names: Sequence[str], *, deadline_s: float
) -> CommandResult:
    """`names` are nameable."""
    argv = ("sacctmgr", "-iQ", "add", "user", f"name={','.join(names)}")
    return slurm.run(*argv, f"account={ACCOUNT}", f"cluster={cluster}", deadline_s=deadline_s)


def close_lost(slurm: Slurm, cluster: str, *, deadline_s: float) -> CommandResult:
    """Ends in the database the jobs of which slurmctld knows nothing any more, without time of use; it asks
    unless it is told not to (`-i`), and without a terminal for ever (24.11.5)."""
    argv = ("sacctmgr", "-i", "show", "runawayjobs", f"cluster={cluster}")
    return slurm.run(*argv, deadline_s=deadline_s)


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
