"""`docker exec` of the built-in engine. Imports are counted here: each `dshpc srun` takes this."""

from __future__ import annotations

import os

from dshpc_setup.builtin import cache, enter
from dshpc_setup.builtin_client.failing import ClientError
from dshpc_setup.builtin_client.words import Options
from dshpc_setup.documents import foreign
from dshpc_setup.files import owned

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Asked:
    """What to run in which container, as `exec` says it."""

    def __init__(
        self,
        container: str,
        argv: tuple[str, ...],
        options: Options | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        options = options or Options((), {})
        self.container = container
        self.stdin, self.terminal = options.has("-i"), options.has("-t")
        user, folder = options.value("--user") or "root", options.value("-w") or "/"
        self.command = enter.Command(argv, user, environment, folder)


def asked(argv: Sequence[str]) -> Asked:
    """The words after `exec`; ClientError for wrong ones."""
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
    return Asked(name, tuple(words), options, environment)


def run(folder: str | os.PathLike[str], what: Asked) -> int:
    """With our streams: its exit code. enter.RefusedError."""
    if what.terminal:
        return enter.run_terminal(folder, what.command)
    given = 0
    if not what.stdin:
        given = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return enter.run(folder, what.command, (given, 1, 2))


def quick(argv: Sequence[str]) -> int | None:
    """The same as `exec` does it; None where it takes the whole client to say what is wrong."""
    try:
        what = asked(argv)
        folder = _run_folder(what.container)
    except (ClientError, OSError, ValueError, KeyError, TypeError):
        return None
    try:
        return None if folder is None else run(folder, what)
    except KeyboardInterrupt:
        return 130
    except enter.RefusedError:  # nothing was run
        return None


def _run_folder(name: str) -> str | None:
    """Of the container with that plain name, by its record alone."""
    if not all(each.isascii() and (each.isalnum() or each in "-_") for each in name):
        return None
    text = owned.read_text(f"{cache.place(os.environ)}/engine/container/{name}.json")
    folder = foreign.value(text)["wanted"]["run"]
    return folder if isinstance(folder, str) else None
