"""conda's environment.yml, and what conda itself was told of this site: which channels, packages and
variables it comes down to. Pure.

What conda knows and this does not (paths, files of pip's, a key of another program) is refused, all of it at
once: an environment is known by this one file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup.documents import yaml_nodes
from dshpc_setup.environment.declared_folder import check_requirements
from dshpc_setup.errors import usage_error

ALIAS = "https://conda.anaconda.org"
_KEYS = (
    "name",
    "channels",
    "dependencies",
    "variables",
    "prefix",
)  # the first and the last: conda's own
_DEFAULTS = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
_WITHOUT_CHANNELS = "conda-forge"
_CHANNEL = re.compile(r"[A-Za-z0-9_][\w.+/@:%~-]{0,500}")
_OF_CHANNEL = re.compile(r"([^\s\[\]=<>]+)::")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Site:
    """Where channels lie that are named without an address, which ones `defaults` are, and the file of
    authorities, all as conda was told."""

    alias: str = ALIAS
    defaults: tuple[str, ...] = _DEFAULTS
    certificates: str | None = None


@dataclass(frozen=True)
class Wanted:
    """`channels`: addresses, those that come first count more. `packages`: conda's specs. `pip`: lines of a
    requirements file."""

    channels: tuple[str, ...]
    packages: tuple[str, ...]
    pip: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def site(env: Mapping[str, str], text_of: Callable[[str], str | None]) -> Site:
    """What conda's own settings say; the first file that has a key counts."""
    home = env.get("HOME", "")
    files = (
        env.get("CONDARC"),
        f"{home}/.condarc",
        f"{home}/.config/conda/.condarc",
        "/etc/conda/.condarc",
    )
    told: dict[str, Any] = {}
    for path in filter(None, files):
        try:
            found = yaml_nodes.load(text_of(path) or "")
        except ValueError:
            continue
        told = {**found, **told} if isinstance(found, dict) else told
    alias = env.get("CONDA_CHANNEL_ALIAS") or told.get("channel_alias")
    defaults = told.get("default_channels")
    verify = told.get("ssl_verify")
    alias = alias.rstrip("/") if isinstance(alias, str) and "://" in alias else ALIAS
    return Site(
        alias,
        tuple(_address(each, alias) for each in defaults if isinstance(each, str))
        if isinstance(defaults, list)
        else _DEFAULTS,
        verify if isinstance(verify, str) and verify.startswith("/") else None,
    )


def read(text: bytes, path: str, here: Site) -> Wanted:
    """Raises DshpcError (usage) that names all that is wrong."""
    try:
        found = yaml_nodes.load(text.decode("utf-8-sig"))
    except ValueError as error:
        raise usage_error(f"{path} is not YAML.", str(error)) from None
    wrong: list[str] = []
    if not isinstance(found, dict):
        found = {}
        wrong.append("It holds no keys: `dependencies:` with a list is needed.")
    wrong += [
        f"{key[:40]}: unknown here. Known are {', '.join(_KEYS)}."
        for key in found
        if key not in _KEYS
    ]
    packages, pip = _dependencies(found.get("dependencies"), wrong)
    named = [*_texts(found.get("channels"), "channels", wrong)] or [_WITHOUT_CHANNELS]
    named += [match[1] for each in packages if (match := _OF_CHANNEL.match(each))]
    wanted = Wanted(
        tuple(dict.fromkeys(_channels(named, here, wrong))),
        tuple(packages),
        tuple(pip),
        tuple(_variables(found.get("variables"), wrong)),
    )
    if not packages and not wrong:
        wrong.append("dependencies: names no package of conda's.")
    if wrong:
        step = "What needs more than packages can run in an image: dshpc run --image"
        raise usage_error(
            f"{path} cannot be made into an environment.", "\n".join(wrong[:20]), step
        )
    check_requirements("\n".join(pip).encode(), path)
    return wanted


def _dependencies(found: object, wrong: list[str]) -> tuple[list[str], list[str]]:
    packages: list[str] = []
    pip: list[str] = []
    for each in found if isinstance(found, list) else []:
        if isinstance(each, str) and each.strip():
            packages.append(each.strip())
        elif isinstance(each, dict) and list(each) == ["pip"]:
            pip += _texts(each["pip"], "pip", wrong)
        else:
            wrong.append(
                f"dependencies: {str(each)[:60]!r} is neither a package nor `pip:` with a list."
            )
    if not isinstance(found, list):
        wrong.append("dependencies: a list is needed.")
    return packages, pip


def _texts(found: object, key: str, wrong: list[str]) -> Iterator[str]:
    if found is not None and not isinstance(found, list):
        wrong.append(f"{key}: a list is needed.")
        return
    for each in found or ():
        if isinstance(each, str) and each.strip():
            yield each.strip()
        else:
            wrong.append(f"{key}: {str(each)[:60]!r} is no text.")


def _channels(named: list[str], here: Site, wrong: list[str]) -> Iterator[str]:
    for each in named:
        if each == "defaults":
            yield from here.defaults
        elif each.startswith("/"):
            yield f"file://{os.path.normpath(each)}"
        elif not _CHANNEL.fullmatch(each):
            wrong.append(
                f"channels: {each[:80]!r} is no name or address. A folder is named from the root."
            )
        elif each != "nodefaults":
            yield _address(each, here.alias)


def _address(channel: str, alias: str) -> str:
    return channel.rstrip("/") if "://" in channel else f"{alias}/{channel}"


def _variables(found: object, wrong: list[str]) -> Iterator[tuple[str, str]]:
    if found is not None and not isinstance(found, dict):
        wrong.append("variables: NAME: VALUE is needed.")
    for name, value in found.items() if isinstance(found, dict) else ():
        if (
            not _VARIABLE.fullmatch(name)
            or isinstance(value, (list, dict))
            or "\0" in (value or "")
        ):
            wrong.append(f"variables: {name[:40]!r} is no variable with a text.")
        else:
            yield name, value or ""
