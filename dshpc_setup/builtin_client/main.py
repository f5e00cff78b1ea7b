"""The verbs of Docker's client that dsHPC uses, for the built-in engine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from dshpc_setup import __version__
from dshpc_setup.builtin import enter
from dshpc_setup.builtin_client import containers, describe, failing
from dshpc_setup.builtin_client.failing import ClientError
from dshpc_setup.builtin_client.store import Kind, Store
from dshpc_setup.builtin_client.words import Options, put
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.machine.local import LocalMachine


def main(argv: list[str]) -> int:
    """The exit code, as Docker's client has it: 1 for what the engine refuses, 125 for wrong words."""
    machine = LocalMachine()
    store = Store(machine.env)
    verb, *rest = argv or ["help"]
    try:
        if verb == "compose":
            from dshpc_setup.builtin_client import compose

            return compose.main(machine, store, rest)
        act = _VERBS.get(verb)
        if act is None:
            raise failing.usage(f"docker: '{verb}' is not a command of the built-in engine.")
        return act(machine, store, rest) or 0
    except ClientError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    except DshpcError as error:
        lines = [error.brief, *filter(None, error.details.splitlines())]
        sys.stderr.write("Error response from daemon: " + "\n  ".join(lines) + "\n")
        return 1
    except TimeoutError as error:
        sys.stderr.write(f"Error response from daemon: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _exec(_: Machine, store: Store, argv: list[str]) -> int:
    options = Options(
        argv,
        {"-i": "nothing", "-t": "nothing", "--user": "value", "-e": "value", "-w": "value"},
    )
    name, *words = options.words
    environment = {}
    for told in options.values("-e"):
        key, equals, value = told.partition("=")
        if equals or key in os.environ:
            environment[key] = value if equals else os.environ[key]
    container = containers.need(store, name)
    user = options.value("--user") or "root"
    what = enter.Command(tuple(words), user, environment, options.value("-w") or "/")
    return containers.execute(container, what, stdin=options.has("-i"), terminal=options.has("-t"))


def _inspect(_: Machine, store: Store, argv: list[str]) -> None:
    options = Options(argv, {"--type": "value", "--format": "value"})
    kind = options.value("--type") or "container"
    found = []
    for name in options.words:
        found.append(_described(store, kind, name))
    template = options.value("--format")
    if template is None:
        put(json.dumps(found, indent=1))
        return
    for each in found:
        put(describe.shown(each, template, json.dumps))


def _described(store: Store, kind: str, name: str) -> dict[str, Any]:
    made = store.find(_kind(kind, name), name)
    if made is None:
        raise failing.none(kind, name)
    if kind == "container":
        return describe.container(store, made)
    return describe.image(made) if kind == "image" else describe.volume(made)


def _kind(kind: str, name: str) -> Kind:
    found = next((each for each in get_args(Kind) if each == kind), None)
    if found is None:
        raise failing.none(kind, name)
    known: Kind = found
    return known


def _logs(_: Machine, store: Store, argv: list[str]) -> int:
    options = Options(argv, {"--follow": "nothing", "--since": "value", "--tail": "value"})
    container = containers.need(store, options.words[0])
    tail = options.value("--tail")
    lines = containers.log_of(container).splitlines(keepends=True)
    if tail is not None and tail != "all":
        lines = lines[len(lines) - min(len(lines), int(tail)) :]
    sys.stdout.buffer.write(b"".join(lines))
    sys.stdout.buffer.flush()
    if options.has("--follow"):
        containers.follow(container, sys.stdout.buffer)
    return 0


def _top(_: Machine, store: Store, argv: list[str]) -> int:
    name, *words = argv
    container = containers.need(store, name)
    what = enter.Command(("ps", *(words or ["-ef"])))
    return containers.execute(container, what, stdin=False, terminal=False)


def _stop(_: Machine, store: Store, argv: list[str]) -> None:
    options = Options(argv, {"-t": "value", "--time": "value"})
    for name in options.words:
        grace = options.value("-t", "--time")
        containers.stop(containers.need(store, name), None if grace is None else float(grace))
        put(name)


def _start(machine: Machine, store: Store, argv: list[str]) -> None:
    for name in Options(argv, {}).words:
        with store.changing():
            containers.start(machine, store, containers.need(store, name))
        put(name)


def _restart(machine: Machine, store: Store, argv: list[str]) -> None:
    for name in Options(argv, {}).words:
        with store.changing():
            container = containers.need(store, name)
            containers.stop(container)
            containers.start(machine, store, container)
        put(name)


def _rm(machine: Machine, store: Store, argv: list[str]) -> None:
    options = Options(argv, {"-f": "nothing", "--force": "nothing", "-v": "nothing"})
    for name in options.words:
        with store.changing():
            container = store.find("container", name)
            if container is None and not options.has("-f", "--force"):
                raise failing.none("container", name)
            if container is not None:
                containers.remove(machine, store, container, force=options.has("-f", "--force"))
        put(name)


def _ps(_: Machine, store: Store, argv: list[str]) -> None:
    options = Options(argv, {"-a": "nothing", "--format": "value", "--filter": "value"})
    for each in _labelled(store, "container", options.values("--filter")):
        told = describe.container(store, each)
        if options.has("-a") or told["State"]["Running"]:
            put(each.name)


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


def _images(_: Machine, store: Store, argv: list[str]) -> None:
    options = Options(
        argv,
        {"--format": "value", "--filter": "value", "--quiet": "nothing", "--no-trunc": "nothing"},
    )
    named = options.words[0] if options.words else None
    found = _labelled(store, "image", options.values("--filter"))
    for each in sorted(found, key=lambda one: one.created, reverse=True):
        if named in (None, each.ref, each.ref.rpartition(":")[0]):
            put(each.id if options.has("--quiet") else each.ref)


def _image(machine: Machine, store: Store, argv: list[str]) -> None:
    from dshpc_setup.builtin_client import images

    verb, *rest = argv or [""]
    if verb == "inspect":
        _inspect(machine, store, ["--type", "image", *rest])
    elif verb == "ls":
        _images(machine, store, rest)
    elif verb == "load":
        options = Options(rest, {"--input": "value", "--tag": "value"})
        archive = Path(options.value("--input") or "")
        with store.changing():
            ids = containers.ids_of(machine)
            loaded = images.load(machine, store, archive, ids, options.value("--tag"))
        put(f"Loaded image: {loaded.ref}")
    elif verb == "save":
        options = Options(rest, {"--output": "value"})
        image = containers.need_image(store, options.words[0])
        images.save(machine, image, Path(options.value("--output") or ""))
    else:
        raise failing.usage(f"docker: 'image {verb}' is not a command of the built-in engine.")


def _rmi(machine: Machine, store: Store, argv: list[str]) -> None:
    from dshpc_setup.builtin_client import images

    for ref in Options(argv, {"-f": "nothing"}).words:
        with store.changing():
            images.remove(machine, store, ref)
        put(f"Untagged: {ref}")


def _volume(machine: Machine, store: Store, argv: list[str]) -> None:
    verb, *rest = argv or [""]
    if verb == "ls":
        options = Options(rest, {"-q": "nothing", "--filter": "value"})
        for each in _labelled(store, "volume", options.values("--filter")):
            put(each.name)
    elif verb == "rm":
        for name in Options(rest, {"-f": "nothing"}).words:
            with store.changing():
                containers.remove_volume(machine, store, name)
            put(name)
    elif verb == "inspect":
        _inspect(machine, store, ["--type", "volume", *rest])
    else:
        raise failing.usage(f"docker: 'volume {verb}' is not a command of the built-in engine.")


def _network(_: Machine, __: Store, argv: list[str]) -> None:
    if argv[:1] == ["ls"]:
        return  # containers have the machine's own network
    raise failing.none("network", argv[-1] if argv else "")


def _run(machine: Machine, store: Store, argv: list[str]) -> int:
    from dshpc_setup.builtin_client import running

    return running.run(machine, store, argv)


def _version(_: Machine, __: Store, argv: list[str]) -> None:
    told = {"Server": {"Version": __version__, "Os": "linux", "Arch": describe.processor()}}
    template = Options(argv, {"--format": "value"}).value("--format")
    put(describe.shown(told, template or "{{json .}}", json.dumps))


def _context(_: Machine, __: Store, ___: list[str]) -> None:
    put("default")


_VERBS: dict[str, Callable[[Machine, Store, list[str]], int | None]] = {
    "exec": _exec,
    "inspect": _inspect,
    "logs": _logs,
    "top": _top,
    "stop": _stop,
    "start": _start,
    "restart": _restart,
    "rm": _rm,
    "ps": _ps,
    "images": _images,
    "image": _image,
    "rmi": _rmi,
    "volume": _volume,
    "network": _network,
    "run": _run,
    "version": _version,
    "context": _context,
}
