"""The verbs of Docker's client that dsHPC uses, for the built-in engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dshpc_setup.builtin import launch
from dshpc_setup.builtin_client import containers, executing, failing, looking
from dshpc_setup.builtin_client.failing import ClientError
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.builtin_client.words import Options, put
from dshpc_setup.engine_client import QUIET
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
        told = None if verb == "logs" else looking.answer(store, [verb, *rest])
        if told is not None:
            sys.stdout.write(told)
            sys.stdout.flush()
            return 0
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
    asked = executing.asked(argv)
    if QUIET in os.environ:
        found = store.find("container", asked.container)
        if found is None or launch.find(found.run).state != "running":
            return 1
    return containers.execute(containers.need(store, asked.container), asked)


def _logs(_: Machine, store: Store, argv: list[str]) -> int:
    """The bytes as they were written."""
    options = Options(argv, looking.OF_LOGS)
    container = containers.need(store, options.words[0])
    whole, at = looking.kept(store, options)
    sys.stdout.buffer.write(looking.last_of(whole, options))
    sys.stdout.buffer.flush()
    if options.has("--follow"):
        containers.follow(container, sys.stdout.buffer, at)
    return 0


def _top(_: Machine, store: Store, argv: list[str]) -> int:
    name, *words = argv
    container = containers.need(store, name)
    return containers.execute(container, executing.Asked(name, ("ps", *(words or ["-ef"]))))


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


def _image(machine: Machine, store: Store, argv: list[str]) -> None:
    from dshpc_setup.builtin_client import images

    verb, *rest = argv or [""]
    if verb == "load":
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


def _tag(_: Machine, store: Store, argv: list[str]) -> None:
    from dshpc_setup.builtin_client import images

    source, name = Options(argv, {}).words
    with store.changing():
        images.name(store, replace(containers.need_image(store, source), ref=name))


def _volume(machine: Machine, store: Store, argv: list[str]) -> None:
    verb, *rest = argv or [""]
    if verb == "rm":
        for name in Options(rest, {"-f": "nothing"}).words:
            with store.changing():
                containers.remove_volume(machine, store, name)
            put(name)
    else:
        raise failing.usage(f"docker: 'volume {verb}' is not a command of the built-in engine.")


def _network(_: Machine, __: Store, argv: list[str]) -> None:
    raise failing.none("network", argv[-1] if argv else "")


def _run(machine: Machine, store: Store, argv: list[str]) -> int:
    from dshpc_setup.builtin_client import running

    return running.run(machine, store, argv)


_VERBS: dict[str, Callable[[Machine, Store, list[str]], int | None]] = {
    "exec": _exec,
    "logs": _logs,
    "top": _top,
    "stop": _stop,
    "start": _start,
    "restart": _restart,
    "rm": _rm,
    "image": _image,
    "rmi": _rmi,
    "tag": _tag,
    "volume": _volume,
    "network": _network,
    "run": _run,
}
