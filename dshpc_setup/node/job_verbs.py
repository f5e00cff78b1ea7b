"""`dshpc-node job VERB ...`: what the host asks of the container about jobs, as the calling user.

Each verb imports only what it needs; it is given the words behind it and returns the exit code.
"""

from __future__ import annotations

from collections.abc import Callable


def main(arguments: list[str]) -> int:
    """Run one verb; raises DshpcError."""
    verb, *rest = arguments or [""]
    command = _VERBS.get(verb)
    if command is None:
        import json

        from dshpc_setup.errors import usage_error

        if not verb:  # the host asks which there are
            print(json.dumps({"schema": "dshpc.job-verbs/1", "verbs": list(_VERBS)}))
        raise usage_error(f"There is no dshpc-node job {verb!r}.", f"Known: {', '.join(_VERBS)}.")
    return command(rest)


def _told(command: Callable[[list[str]], int], rest: list[str]) -> int:
    """With --json what went wrong is an object on stdout, too."""
    import json
    import sys

    from dshpc_setup.errors import DshpcError

    try:
        return command(rest)
    except DshpcError as error:
        if "--json" in rest:
            sys.stdout.write(json.dumps(error.to_object(), indent=2) + "\n")
        raise


def _submit(rest: list[str]) -> int:
    import gc

    gc.disable()  # short-lived
    from dshpc_setup.jobs import submit

    return submit.main(rest)


def _check(rest: list[str]) -> int:
    from dshpc_setup.jobs import submit

    return submit.check_main(rest)


def _list(rest: list[str]) -> int:
    from dshpc_setup.jobs import queries

    return _told(queries.list_main, rest)


def _show(rest: list[str]) -> int:
    from dshpc_setup.jobs import queries

    return _told(queries.show_main, rest)


def _logs(rest: list[str]) -> int:
    from dshpc_setup.jobs import queries

    return _told(queries.logs_main, rest)


def _cancel(rest: list[str]) -> int:
    from dshpc_setup.jobs import queries

    return _told(queries.cancel_main, rest)


def _clean(rest: list[str]) -> int:
    from dshpc_setup.jobs import clean

    return clean.main(rest)


def _follow(rest: list[str]) -> int:
    from dshpc_setup.jobs import follow

    return follow.main(rest)


def _watch(rest: list[str]) -> int:
    from dshpc_setup.jobs import watch

    return _told(watch.main, rest)


def _workflow(rest: list[str]) -> int:
    from dshpc_setup.workflows import inside

    return inside.main(rest)


def _carry(rest: list[str]) -> int:
    from dshpc_setup.jobs import carrying

    return carrying.main(rest)


def _ssh(rest: list[str]) -> int:
    from dshpc_setup.ssh import inside

    return inside.main(rest)


_VERBS: dict[str, Callable[[list[str]], int]] = {
    "submit": _submit,
    "check": _check,
    "list": _list,
    "show": _show,
    "logs": _logs,
    "cancel": _cancel,
    "clean": _clean,
    "follow": _follow,
    "watch": _watch,
    "workflow": _workflow,
    "ssh": _ssh,
    "carry": _carry,
}
