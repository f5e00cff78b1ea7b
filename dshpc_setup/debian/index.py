"""A list of packages (`Packages`) read, and what of it has to be installed together. Pure.

The list is 60 MB long and holds 70,000 packages, of which some 200 are looked at: it is split, and only what
is asked for is read. The formats are those of deb-control(5) and Debian's policy, chapter 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from dshpc_setup.debian import versions
from dshpc_setup.debian.faults import DebianError
from dshpc_setup.debian.versions import Relation

ALWAYS = ("apt", "ca-certificates")
"""In a base beside what is essential or required."""
_FIELD = re.compile(r"^([!-9;-~]+):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)
_ALTERNATIVE = re.compile(
    r"^([a-z0-9A-Z][a-z0-9A-Z.+-]*)(?::[a-z0-9-]+)?(?:\s*\(\s*(<<|<=|=|>=|>>|<|>)\s*([^\s)]+)\s*\))?"
)
_HASH = re.compile(r"[0-9a-f]{64}")
_PRIORITIES = ("required", "important", "standard", "optional", "extra")


@dataclass(frozen=True)
class Need:
    """A package that another one needs, in a version that holds; or one that it provides."""

    name: str
    relation: Relation | None = None
    version: str = ""


Clause = tuple[Need, ...]
"""Alternatives, of which one is enough."""


@dataclass(frozen=True)
class Package:
    """What is needed of one to fetch and to install it. `filename` is below the archive's address."""

    name: str
    version: str
    filename: str
    size: int
    sha256: str
    origin: int = 0  # which of the lists it stands in
    essential: bool = False
    priority: str = "optional"
    pre_depends: tuple[Clause, ...] = ()
    depends: tuple[Clause, ...] = ()
    provides: tuple[Need, ...] = ()


def fields(stanza: str) -> dict[str, str]:
    """Field -> value, by lower-case name, of one stanza; the first of a name counts."""
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(stanza):
        found.setdefault(name.lower(), value.strip())
    return found


def clauses(text: str) -> tuple[Clause, ...]:
    """The value of Depends, Pre-Depends or Provides; what cannot be read raises DebianError."""
    found = []
    for part in text.split(","):
        if part.strip():
            found.append(tuple(_need(each.strip()) for each in part.split("|")))
    return tuple(found)


def _need(text: str) -> Need:
    match = _ALTERNATIVE.match(text)
    if match is None:
        raise DebianError("index", text[:200])
    name, sign, version = match.groups()
    if sign is None:
        return Need(name)
    sign = {"<": "<=", ">": ">="}.get(sign, sign)  # as they were once written
    return Need(name, next(each for each in get_args(Relation) if each == sign), version)


def package(stanza: str, origin: int = 0) -> Package:
    """One stanza; DebianError where it lacks what is needed to fetch the package."""
    told = fields(stanza)
    size, sha256, filename = told.get("size", ""), told.get("sha256", ""), told.get("filename", "")
    whole = told.get("package") and told.get("version") and size.isascii() and size.isdigit()
    path = filename.split("/")
    if (
        not whole
        or not _HASH.fullmatch(sha256)
        or not all(path)
        or not {".", ".."}.isdisjoint(path)
    ):
        raise DebianError("index", stanza[:200])
    return Package(
        told["package"],
        told["version"],
        filename,
        int(size),
        sha256,
        origin,
        told.get("essential", "").lower() == "yes",
        told.get("priority", "optional").lower(),
        clauses(told.get("pre-depends", "")),
        clauses(told.get("depends", "")),
        tuple(each for clause in clauses(told.get("provides", "")) for each in clause),
    )


class Index:
    """One or more lists, of which the newest version of a package counts."""

    def __init__(self, *texts: str) -> None:
        self._stanzas: dict[str, list[tuple[str, int]]] = {}
        self._known: dict[str, Package] = {}
        self._providers: dict[str, list[str]] | None = None
        for origin, text in enumerate(texts):
            for part in text.replace("\r\n", "\n").split("\n\n"):
                stanza = part.strip("\n")
                if stanza:
                    self._stanzas.setdefault(_name(stanza), []).append((stanza, origin))

    def __len__(self) -> int:
        return len(self._stanzas)

    def get(self, name: str) -> Package | None:
        """Its newest version; of equal ones that of the first list."""
        if name not in self._known:
            every = [package(*each) for each in self._stanzas.get(name, ())]
            if not every:
                return None
            self._known[name] = max(every, key=lambda each: versions.key(each.version))
        return self._known[name]

    def base(self) -> tuple[str, ...]:
        """The names of what each system has, sorted."""
        found = self._with("\nEssential: yes", "\nPriority: required")
        return tuple(sorted({*found, *ALWAYS}))

    def essential(self) -> tuple[str, ...]:
        """The names of what each script of a package may rely on, sorted; dpkg is one of them."""
        return tuple(sorted(self._with("\nEssential: yes")))

    def _with(self, *lines: str) -> set[str]:
        return {
            name
            for name, every in self._stanzas.items()
            if any(line in stanza for stanza, _ in every for line in lines)
        }

    def offering(self, need: Need) -> Iterator[Package]:
        """Packages that fulfil it: the one of that name, then those that provide it, the likeliest first."""
        real = self.get(need.name)
        if real is not None and fulfils(real, need):
            yield real
        found = [self.get(name) for name in self._all_providers().get(need.name, ())]
        able = [each for each in found if each is not None and fulfils(each, need) and each != real]
        yield from sorted(able, key=lambda each: (_rank(each.priority), each.name))

    def _all_providers(self) -> Mapping[str, list[str]]:
        if self._providers is None:
            self._providers = {}
            for name, every in self._stanzas.items():
                for stanza, _ in every:
                    at = stanza.find("\nProvides:")
                    if at >= 0:
                        for clause in clauses(fields(stanza[at + 1 :])["provides"]):
                            for each in clause:
                                self._providers.setdefault(each.name, []).append(name)
        return self._providers


def _name(stanza: str) -> str:
    """Of most it is the first field."""
    first = stanza.partition("\n")[0]
    if first.startswith("Package: "):
        return first[9:].strip()
    name = fields(stanza).get("package")
    if not name:
        raise DebianError("index", stanza[:200])
    return name


def _rank(priority: str) -> int:
    return _PRIORITIES.index(priority) if priority in _PRIORITIES else len(_PRIORITIES)


def fulfils(offered: Package, need: Need) -> bool:
    """By its own name and version, or by what it provides (policy 7.5: without a version only the name)."""
    if offered.name == need.name and (
        need.relation is None or versions.holds(offered.version, need.relation, need.version)
    ):
        return True
    return any(
        each.name == need.name
        and (
            need.relation is None
            or (bool(each.version) and versions.holds(each.version, need.relation, need.version))
        )
        for each in offered.provides
    )


def closure(index: Index, names: Iterable[str]) -> tuple[Package, ...]:
    """These packages with all that they need, each after what it needs (but in a circle).

    Of alternatives the first that the archive has is taken, where none of them is there anyhow; they are
    looked at when all that leaves no choice is known. A name that only others provide stands for the
    likeliest of them. Recommended packages are left out. Raises DebianError.
    """
    chosen = _Chosen()
    sure: list[tuple[Clause, str]] = [((Need(name),), "") for name in names]
    open_: list[tuple[Clause, str]] = []
    while sure or open_:
        clause, whose = sure.pop(0) if sure else open_.pop(0)
        if chosen.fulfil(clause):
            continue
        new = next((each for need in clause for each in index.offering(need)), None)
        if new is None:
            raise DebianError("missing", _told(clause) + (f", for {whose}" if whose else ""))
        chosen.add(new)
        for each in (*new.pre_depends, *new.depends):
            forced = len(each) == 1 and index.get(each[0].name) is not None
            (sure if forced else open_).append((each, new.name))
    return ordered(chosen.packages)


class _Chosen:
    def __init__(self) -> None:
        self.packages: dict[str, Package] = {}
        self._by_name: dict[str, list[Package]] = {}  # also by what they provide

    def add(self, new: Package) -> None:
        self.packages[new.name] = new
        for name in {new.name, *(each.name for each in new.provides)}:
            self._by_name.setdefault(name, []).append(new)

    def fulfil(self, clause: Clause) -> bool:
        return any(
            fulfils(each, need) for need in clause for each in self._by_name.get(need.name, ())
        )


def _told(clause: Clause) -> str:
    return " | ".join(
        f"{each.name} ({each.relation} {each.version})" if each.relation else each.name
        for each in clause
    )


def ordered(packages: Mapping[str, Package]) -> tuple[Package, ...]:
    """Each after what it needs, what it needs before its own scripts first; a circle is cut somewhere."""
    done: dict[str, Package] = {}
    under: set[str] = set()
    by_name: dict[str, list[str]] = {}
    for name, each in packages.items():
        for offered in {name, *(one.name for one in each.provides)}:
            by_name.setdefault(offered, []).append(name)

    stack: list[tuple[str, bool]] = [(name, False) for name in sorted(packages, reverse=True)]
    while stack:
        name, over = stack.pop()
        if over:
            done[name] = packages[name]
        elif name not in under:
            under.add(name)
            stack.append((name, True))
            needs = (*packages[name].depends, *packages[name].pre_depends)
            wanted = [
                one for clause in needs for need in clause for one in by_name.get(need.name, ())
            ]
            stack += [(one, False) for one in wanted if one not in under]
    return tuple(done.values())
