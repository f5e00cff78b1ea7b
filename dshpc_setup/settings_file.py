"""dshpc.yaml as people wrote it: one value changed, comments, order and quoting kept."""

from __future__ import annotations

import difflib
import io

from dshpc_setup import settings
from dshpc_setup.errors import usage_error


def changed(text: str | None, name: str, value: str) -> str:
    """The file's text with `name: value`; everything else stays as it is.

    Raises DshpcError (usage) for an unknown name, a value that the setting does not take, or a file
    that is not valid as it stands.
    """
    if name not in settings.BY_NAME:
        near = difflib.get_close_matches(name, list(settings.BY_NAME), 1)
        raise usage_error(
            f"There is no setting {name!r}.",
            f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(settings.BY_NAME)}.",
        )
    settings.load(yaml_text=text or "")
    wanted = getattr(settings.load(flags={name: value}), name)
    new = _with(text or "", name, value)
    if getattr(settings.load(yaml_text=new), name) != wanted:
        raise usage_error(
            f"{name} could not be written into dshpc.yaml, which is left as it is.",
            "What was to be written would be read as something else.",
            f"Write it with an editor: a line such as {name}: VALUE.",
        )
    return new


def _with(text: str, name: str, value: str) -> str:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    document = yaml.load(text) or {}
    is_list = isinstance(settings.BY_NAME[name].default, tuple)
    document[name] = value.split(",") if is_list and "," in value else value
    stream = io.StringIO()
    yaml.dump(document, stream)
    new = stream.getvalue()
    if not text or _has_keys(text):
        return new
    # ruamel forgets comments of a file that holds nothing else
    return text + ("" if text.endswith("\n") else "\n") + new


def _has_keys(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
