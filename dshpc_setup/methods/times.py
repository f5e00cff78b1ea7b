"""How long a job may run: Slurm's forms and "2h" -> minutes."""

from __future__ import annotations

import re

FORMS = 'Minutes (90), "90s", "30m", "2h", "1d", "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM" or "D-HH:MM:SS".'

_UNIT_S = {"": 60, "s": 1, "m": 60, "h": 3600, "d": 86400}
_WITH_UNIT = re.compile(r"([0-9]{1,9})([smhd]?)")
_CLOCK = re.compile(r"(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-5][0-9])")
_DAYS = re.compile(r"([0-9]{1,6})-([0-9]{1,2})(?::([0-5][0-9])(?::([0-5][0-9]))?)?")


def minutes(text: str) -> int | None:
    """Whole minutes, a part of one counted as one, as Slurm does; None where it is no such time.

    Slurm's forms: sbatch(1), --time.
    """
    found = seconds(text)
    return None if found is None else -(-found // 60)


def seconds(text: str) -> int | None:
    """The same in seconds."""
    if found := _WITH_UNIT.fullmatch(text):
        return int(found[1]) * _UNIT_S[found[2]]
    if found := _CLOCK.fullmatch(text):
        hours, middle, last = (int(part or 0) for part in found.groups())
        return None if found[1] and middle > 59 else hours * 3600 + middle * 60 + last
    if found := _DAYS.fullmatch(text):
        days, hours, middle, last = (int(part or 0) for part in found.groups())
        return None if hours > 23 else days * 86400 + hours * 3600 + middle * 60 + last
    return None
