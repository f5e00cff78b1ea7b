"""One Python package as people write it. What is no plain name with versions is refused."""

from __future__ import annotations

import re

from dshpc_setup.environment.model import Requirement
from dshpc_setup.environment.schema import NAME, VERSIONS

_WHOLE = re.compile(rf"(?P<name>{NAME}) *(?P<versions>{VERSIONS})?")
_LONGEST = 500
# pip would take these for files
_ARCHIVES = (".zip", ".whl", ".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tbz", ".tar.xz", ".txz")
PLAIN = "Write a name, with versions where needed: numpy, pandas==2.2, scikit-learn>=1.5,<2."


def parse(text: str) -> Requirement | None:
    """ "pandas[excel]>=2,<3"; None for anything else: an option, a path, an address, a marker."""
    found = _WHOLE.fullmatch(text.strip(" \t")) if len(text) <= _LONGEST else None
    return _made(found["name"], found["versions"] or "") if found else None


def of_pair(name: str, versions: str) -> Requirement | None:
    """As python.json has it: a bare version means that one."""
    if versions and versions[0] not in "=!~<>":
        versions = f"=={versions}"
    return parse(f"{name}{versions}")


def _made(name: str, versions: str) -> Requirement | None:
    name, _, extras = name.replace(" ", "").partition("[")
    if name.lower().endswith(_ARCHIVES):
        return None
    named = tuple(sorted(set(extras.rstrip("]").split(",")))) if extras else ()
    return Requirement(name, named, versions.replace(" ", ""))


def why_not(text: str) -> str:
    """What keeps the text from being one, in a sentence."""
    if text.startswith("-"):
        return "An option of pip; none is taken from here."
    if "://" in text or text.startswith("git+") or "@" in text:
        return "An address; packages come from the package index by name."
    if "/" in text or text.startswith("."):
        return "A path; packages come from the package index by name."
    if ";" in text:
        return "A marker; the image has one Python on one platform, so none is needed."
    if text.lower().endswith(_ARCHIVES):
        return "The name of an archive; packages come from the package index by name."
    return "It is no name of a package with versions."
