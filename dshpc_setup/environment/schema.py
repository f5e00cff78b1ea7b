"""The forms of `environment/*.json`, in the words of JSON Schema; dsHPC's own keys and meanings."""

from __future__ import annotations

import json

from dshpc_setup.methods.schema import Schema

PYTHON_FILE = "python.json"
APT_FILE = "system_deps.json"
R_FILE = "r.json"
REQUIREMENTS_FILE = "requirements.txt"
TOOLS: dict[str, tuple[str, ...]] = {
    "apt": ("curl", "git", "less", "python3-pip", "python3-venv", "rsync", "tmux", "vim"),
    "python": ("uv",),
}
"""What people expect of a machine that they log in to, and an image of 64 MiB has not."""
LOCK_PARTS = ("python", "apt", "r")

_END = r"$(?!\n)"
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"
_VERSION = r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}(?:\.\*)?"
_CLAUSE = rf"(?:===|==|!=|~=|>=|<=|>|<) *{_VERSION}"
VERSIONS = rf"{_CLAUSE}(?: *, *{_CLAUSE}){{0,9}}"
NAME = rf"{_WORD}(?: *\[ *{_WORD}(?: *, *{_WORD}){{0,19}} *\])?"

NAME_PATTERN = rf"^{NAME}{_END}"
VERSIONS_PATTERN = rf"^(?:{VERSIONS}|{_VERSION})?{_END}"
DEBIAN_PATTERN = rf"^[a-z0-9][a-z0-9+.-]{{1,126}}{_END}"
R_PATTERN = rf"^[A-Za-z][A-Za-z0-9.]{{0,126}}{_END}"

_ANY = "A link to this schema, for editors."


def _text(description: str, pattern: str, example: str) -> Schema:
    return {
        "description": description,
        "type": "string",
        "pattern": pattern,
        "examples": [example],
    }


def _map(description: str, names: Schema, values: Schema) -> Schema:
    return {
        "description": description,
        "type": "object",
        "propertyNames": names,
        "additionalProperties": values,
        "examples": [{names["examples"][0]: values["examples"][0]}],
    }


def _file(title: str, description: str, properties: Schema) -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
        "type": "object",
        "properties": {"$schema": {"type": "string", "description": _ANY, "examples": ["x"]},
                       **properties},
        "additionalProperties": False,
        "examples": [{name: each["examples"][0] for name, each in properties.items()}],
    }  # fmt: skip


SCHEMAS: dict[str, Schema] = {
    PYTHON_FILE: _file(
        "environment/python.json of dsHPC",
        "The Python packages that methods import.",
        {
            "python_version": _text(
                "The Python of the image, to be sure of it: 3.13.",
                rf"^[0-9]\.[0-9]{{1,2}}(\.[0-9]{{1,2}})?{_END}",
                "3.13",
            ),
            "libraries": _map(
                "Package -> version.",
                _text(
                    "A package, with extras where needed: scikit-learn, uvicorn[standard].",
                    NAME_PATTERN,
                    "numpy",
                ),
                _text(
                    'A version ("2.1.0"), limits (">=2,<3"), or "" for any.',
                    VERSIONS_PATTERN,
                    ">=2,<3",
                ),
            ),
        },
    ),
    APT_FILE: _file(
        "environment/system_deps.json of dsHPC",
        "The packages of Debian that methods need.",
        {
            "apt_packages": {
                "description": "Names of Debian's packages.",
                "type": "array",
                "items": _text("A package of Debian.", DEBIAN_PATTERN, "libgomp1"),
                "maxItems": 500,
                "examples": [["libgomp1"]],
            }
        },
    ),
    R_FILE: _file(
        "environment/r.json of dsHPC",
        "The R packages that methods load; they come as Debian packages them.",
        {
            "packages": _map(
                "Package -> version, which is Debian's own.",
                _text("A package of CRAN or Bioconductor.", R_PATTERN, "dplyr"),
                _text('"": Debian has one version of each.', rf"^{_END}", ""),
            )
        },
    ),
}


def published(file: str) -> str:
    """The text of docs/schemas/environment-FILE.schema.json."""
    return json.dumps(SCHEMAS[file], indent=2) + "\n"
