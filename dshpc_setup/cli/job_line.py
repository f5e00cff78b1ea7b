"""`dshpc job list|show|logs|cancel`: the command line, read without typer, and the one call inside.

The commands are declared in jobs.py, for their help and for what is wrong with a line. Everything
about jobs is known in the container: see dshpc_setup/jobs/queries.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from dshpc_setup.cli import exec as cli_exec
from dshpc_setup.cli import exec_caller

_USAGE = 64  # as errors.Exit, which costs an import
# Verb -> its options without a value, those with one, the least and the most words
_VERBS: dict[str, tuple[tuple[str, ...], tuple[str, ...], int, int]] = {
    "list": (("--all", "--json"), (), 0, 0),
    "show": (("--json",), (), 1, 1),
    "logs": (("--follow", "-f"), ("--task",), 1, 1),
    "cancel": (("--json",), (), 1, 1000),
}


def parsed(arguments: Sequence[str]) -> tuple[list[str], str | None] | None:
    """The words for `dshpc-node job` and the project's folder; None for what typer has to judge."""
    verb, *rest = arguments or [""]
    if verb not in _VERBS:
        return None
    switches, values, least, most = _VERBS[verb]
    options: list[str] = []
    ids: list[str] = []
    folder: str | None = None
    words = iter(rest)
    for word in words:
        name, equals, value = word.partition("=")
        if word in switches:
            options.append(word)
        elif name in (*values, "--dir"):
            value = value if equals else next(words, "")
            if not value or value.startswith("-"):
                return None
            if name == "--dir":
                folder = value
            elif re.fullmatch(r"[0-9]{1,10}", value):
                options += [name, value]
            else:
                return None
        elif word.startswith("-"):
            return None
        else:
            ids.append(word)
    return ([verb, *ids, *options], folder) if least <= len(ids) <= most else None


def ask(words: Sequence[str], folder: str | None) -> int:
    """One `docker exec`: its streams and exit code are ours. Raises DshpcError where there is no
    cluster to ask."""
    environ = os.environ if folder is None else {**os.environ, "DSHPC_DIR": folder}
    runtime = cli_exec.runtime(environ)
    whole = ["job", *words, "--work", str(runtime["work"])]
    call = cli_exec.Call(cli_exec.NODE, whole, runtime)
    call.more = exec_caller.for_people(os.environ)
    code = cli_exec.run(call)
    if {"-f", "--follow"} & {*words}:
        job = words[1]
        cli_exec.say_unwatched(call, code, f"job {job}", f"End it: dshpc job cancel {job}")
    if code == _USAGE:
        _check_known(call, words[0])
    return code


def _check_known(call: cli_exec.Call, verb: str) -> None:
    """Raises DshpcError where the cluster is of an older version, to which the verb is no command."""
    from dshpc_setup import engine_door
    from dshpc_setup.cli import job_trouble
    from dshpc_setup.machine.local import LocalMachine

    if not job_trouble.knows(engine_door.of(LocalMachine(), call.runtime), call, verb):
        raise job_trouble.older("")
