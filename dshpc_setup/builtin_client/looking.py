"""What is asked of the built-in engine and changes nothing, answered as Docker's client prints it.

A machine whose engine this is takes the answer from here: another process would take longer than all else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from dshpc_setup import __version__
from dshpc_setup.builtin import log as written
from dshpc_setup.builtin_client import containers, describe, failing
from dshpc_setup.builtin_client.store import Kind, Store
from dshpc_setup.builtin_client.words import Options

if TYPE_CHECKING:
    from dshpc_setup.builtin_client.words import Takes

OF_LOGS: Mapping[str, Takes] = {"--follow": "nothing", "--since": "value", "--tail": "value"}


def answer(store: Store, words: Sequence[str]) -> str | None:
    """The standard output; None for words that do more than look. ClientError."""
    for count in (2, 1):
        look = _LOOKS.get(tuple(words[:count]))
        if look is not None:
            return look(store, list(words[count:]))
    if words[:1] == ["logs"] and "--follow" not in words:
        return log(store, list(words[1:]))
    return None


def log(store: Store, argv: list[str]) -> str:
    options = Options(argv, OF_LOGS)
    return last_of(kept(store, options)[0], options).decode(errors="replace")


def kept(store: Store, options: Options) -> tuple[bytes, int]:
    """What a container's log has, since when is asked for, and the size of its file."""
    since = options.value("--since")
    container = containers.need(store, options.words[0])
    return written.read(container.run, None if since is None else _moment(since))


def _moment(text: str) -> float:
    """RFC 3339, as Docker takes it; Python 3.10 reads neither "Z" nor nanoseconds."""
    try:
        plain = re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00"))
        return datetime.fromisoformat(plain).timestamp()
    except (ValueError, OverflowError):
        raise failing.usage(f"invalid value for --since: {text!r}") from None


def last_of(whole: bytes, options: Options) -> bytes:
    """The lines of a log that are asked for."""
    tail = options.value("--tail")
    if tail is None or tail == "all":
        return whole
    lines = whole.split(b"\n")  # and not at each sign that Python takes for a line's end
    count = int(tail) + (lines[-1] == b"")
    return b"\n".join(lines[max(0, len(lines) - count) :])


def _inspect(store: Store, argv: list[str]) -> str:
    options = Options(argv, {"--type": "value", "--format": "value"})
    kind = _kind(options.value("--type") or "container", options.words)
    found = [_described(store, kind, name) for name in options.words]
    template = options.value("--format")
    if template is None:
        return json.dumps(found, indent=1) + "\n"
    return _lines(describe.shown(each, template, json.dumps) for each in found)


def _kind(text: str, names: Sequence[str]) -> Kind:
    found: Kind | None = next((each for each in get_args(Kind) if each == text), None)
    if found is None:
        raise failing.none(text, names[0] if names else "")
    return found


def _described(store: Store, kind: Kind, name: str) -> dict[str, Any]:
    made = store.find(kind, name)
    if made is None:
        raise failing.none(kind, name)
    if kind == "container":
        return describe.container(store, made)
    return describe.image(made) if kind == "image" else describe.volume(made)


def _ps(store: Store, argv: list[str]) -> str:
    options = Options(argv, {"-a": "nothing", "--format": "value", "--filter": "value"})
    return _lines(
        each.name
        for each in _labelled(store, "container", options.values("--filter"))
        if options.has("-a") or describe.container(store, each)["State"]["Running"]
    )


def _labelled(store: Store, kind: Kind, filters: list[str]) -> list[Any]:
    found = store.all(kind)
    for text in filters:
        if not text.startswith("label="):
            raise failing.usage(f"invalid filter {text!r}")
        key, equals, value = text.removeprefix("label=").partition("=")
        found = [
            each
            for each in found
            if key in each.labels and (not equals or each.labels[key] == value)
        ]
    return found


def _images(store: Store, argv: list[str]) -> str:
    options = Options(
        argv,
        {"--format": "value", "--filter": "value", "--quiet": "nothing", "--no-trunc": "nothing"},
    )
    named = options.words[0] if options.words else None
    found = _labelled(store, "image", options.values("--filter"))
    return _lines(
        each.id if options.has("--quiet") else each.ref
        for each in sorted(found, key=lambda one: one.created, reverse=True)
        if (each.has_name or options.has("--quiet"))
        and named in (None, each.ref, each.ref.rpartition(":")[0])
    )


def _volumes(store: Store, argv: list[str]) -> str:
    options = Options(argv, {"-q": "nothing", "--filter": "value"})
    return _lines(each.name for each in _labelled(store, "volume", options.values("--filter")))


def _version(_: Store, argv: list[str]) -> str:
    told = {"Server": {"Version": __version__, "Os": "linux", "Arch": describe.processor()}}
    template = Options(argv, {"--format": "value"}).value("--format")
    return describe.shown(told, template or "{{json .}}", json.dumps) + "\n"


def _lines(texts: Any) -> str:
    return "".join(f"{text}\n" for text in texts)


_LOOKS: dict[tuple[str, ...], Callable[[Store, list[str]], str]] = {
    ("inspect",): _inspect,
    ("image", "inspect"): lambda store, argv: _inspect(store, ["--type", "image", *argv]),
    ("volume", "inspect"): lambda store, argv: _inspect(store, ["--type", "volume", *argv]),
    ("ps",): _ps,
    ("images",): _images,
    ("image", "ls"): _images,
    ("volume", "ls"): _volumes,
    ("network", "ls"): lambda *_: "",  # containers have the machine's own network
    ("version",): _version,
    ("context",): lambda *_: "default\n",
}
