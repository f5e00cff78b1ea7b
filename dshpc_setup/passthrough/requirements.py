"""The language of NVIDIA_REQUIRE_*: what an image demands of driver and GPU, as the toolkit reads it.

"cuda>=12.4 brand=tesla,driver>=470,driver<471": blanks are OR, commas AND. A condition that cannot be
read counts only where the evaluation comes to it, in order, as in the toolkit. What is not known of
this machine makes a condition neither true nor false.

Source: libnvidia-container, src/cli/dsl.c and src/cli/configure.c.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["yes", "no", "unknown", "malformed"]

_CONDITION = re.compile(r"(?P<name>[^<>=!]+)(?P<sign>[<>=!]+)(?P<value>.+)", re.DOTALL)
_VERSION = re.compile(r"\d+(?:\.+\d+)*\.*", re.ASCII)
_COMPARE: dict[str, Callable[[object, object], bool]] = {
    "=": operator.eq,
    "!": operator.ne,  # the toolkit takes the beginning of a sign for the sign
    "!=": operator.ne,
}
_ORDER: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Offer:
    """What driver and one GPU have; None: not known."""

    cuda: str | None = None
    driver: str | None = None
    arch: str | None = None  # compute capability
    brands: frozenset[str] | None = None  # lower case; several where it may be any of them


@dataclass(frozen=True)
class Condition:
    """One comparison: "driver>=470"; `sign` is None where it cannot be read."""

    text: str
    name: str = ""
    sign: str | None = None
    value: str = ""


@dataclass(frozen=True)
class Requirement:
    """The value of one NVIDIA_REQUIRE_* variable: alternatives, each of which is a list of AND."""

    text: str
    alternatives: tuple[tuple[Condition, ...], ...] = ()

    @property
    def least_cuda(self) -> str | None:
        """The CUDA that it names first, "12.4"; None where it names none."""
        for alternative in self.alternatives:
            for condition in alternative:
                if condition.name == "cuda" and condition.sign == ">=":
                    return condition.value if _VERSION.fullmatch(condition.value) else None
        return None


def parse(text: str) -> Requirement:
    """Never raises: what cannot be read stays in its place."""
    alternatives = (
        tuple(_condition(part) for part in alternative.split(",") if part)
        for alternative in text.split(" ")
    )
    return Requirement(text, tuple(parts for parts in alternatives if parts))


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None or (found["sign"] not in _COMPARE and found["sign"] not in _ORDER):
        return Condition(text)
    return Condition(text, found["name"].lower(), found["sign"], found["value"])


def holds(requirement: Requirement, offer: Offer) -> Verdict:
    """Whether any alternative holds; a text without one demands nothing."""
    if not requirement.alternatives:
        return "yes"
    return _first("yes", "no", (_all(each, offer) for each in requirement.alternatives))


def _all(conditions: Iterable[Condition], offer: Offer) -> Verdict:
    return _first("no", "yes", (_one(condition, offer) for condition in conditions))


def _first(decides: Verdict, otherwise: Verdict, verdicts: Iterable[Verdict]) -> Verdict:
    """The first that decides; a malformed one ends it, unless an unknown may have decided before."""
    uncertain = False
    for verdict in verdicts:
        if verdict == decides:
            return decides
        if verdict == "malformed":
            return "unknown" if uncertain else "malformed"
        uncertain = uncertain or verdict == "unknown"
    return "unknown" if uncertain else otherwise


def _one(condition: Condition, offer: Offer) -> Verdict:
    if condition.sign is None:
        return "malformed"
    if condition.name == "brand":
        return _brand(condition.sign, condition.value.lower(), offer.brands)
    versions = {"cuda": offer.cuda, "driver": offer.driver, "arch": offer.arch}
    if condition.name not in versions or not _VERSION.fullmatch(condition.value):
        return "malformed"
    have = versions[condition.name]
    if have is None or not _VERSION.fullmatch(have):
        return "unknown"
    return _version(have, condition.sign, condition.value)


def _version(have: str, sign: str, wanted: str) -> Verdict:
    one, other = _parts(have), _parts(wanted)
    if sign in _COMPARE:
        return "yes" if _COMPARE[sign](one, other) else "no"
    return "yes" if _ORDER[sign](one, other) else "no"


def _parts(version: str) -> tuple[int, ...]:
    """The numbers without zeros at the end: 12.0 is 12. They may be longer than int() likes."""
    parts = [int(part[-18:]) for part in re.findall(r"\d+", version)]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def _brand(sign: str, wanted: str, brands: frozenset[str] | None) -> Verdict:
    if sign not in _COMPARE:
        return "malformed"
    if not brands:
        return "unknown"
    told = {_COMPARE[sign](brand, wanted) for brand in brands}
    if len(told) > 1:
        return "unknown"
    return "yes" if told.pop() else "no"
