"""`dshpc-node`: what is run in the container by its entrypoint and by the host."""

from __future__ import annotations

import os
import sys

from dshpc_setup import lazy
from dshpc_setup.node.arguments import HELP, for_host, no_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dshpc_setup.errors import DshpcError


def main(arguments: list[str]) -> int:
    """The exit code; each command imports only what it needs."""
    from dshpc_setup.errors import DshpcError, Exit
    from dshpc_setup.terminal.sanitize import harmless

    name, *rest = arguments or ["help"]
    name = "help" if name in ("-h", "--help") else name
    if name != "job":  # which runs as a user of the host, with his
        os.umask(0o022)
    if name in _BY_SETTINGS:
        _read_settings()
    if name not in COMMANDS:
        print(f"There is no command {name!r}.\n{HELP}", file=sys.stderr)
        return Exit.USAGE
    try:
        return _command(name)(rest)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except PermissionError as error:
        if name == "job" or os.geteuid() == 0:
            raise
        print(f"Only the container's root may do this: {error.filename}: {error.strerror}.\n"
              f"  On the host: dshpc exec --root -- dshpc-node {name}", file=sys.stderr)  # fmt: skip
        return int(Exit.ERROR)
    except DshpcError as error:
        if name == "job":
            from dshpc_setup.terminal.command_names import print_error

            print_error(error)
            return int(error.exit_code)
        if name == "rotate-key" and for_host():
            import json

            print(json.dumps(error.to_object()))
            return int(error.exit_code)
        print(harmless(error.brief), file=sys.stderr)
        for line in (*error.details.splitlines(), *_steps(name, error)):
            print(f"  {harmless(line)}", file=sys.stderr)
        return int(error.exit_code)


def _read_settings() -> None:
    """Settings that may have changed since the container was made, as variables like the others."""
    from dshpc_setup.slurm.paths import LIVE, TRIED

    text = os.environ.pop(TRIED, None)
    try:
        if text is None:
            with open(LIVE, encoding="utf-8") as file:
                text = file.read(1 << 20)
        from dshpc_setup.documents import foreign

        value = foreign.value(text)
    except (OSError, ValueError):  # none were ever written, or they are as the container has them
        return
    if isinstance(value, dict):
        named = {str(key): str(text) for key, text in value.items()}
        os.environ.update({key: text for key, text in named.items() if key.startswith("DSHPC_")})


def _steps(name: str, error: DshpcError) -> tuple[str, ...]:
    """What to do, in the commands of who asked: the host's dshpc, or a person in the container."""
    if name not in ("reconfigure", "rotate-key") or for_host():
        return error.resolution
    from dshpc_setup.node import typed_inside

    return typed_inside.steps(error)


def _job(rest: list[str]) -> int:
    from dshpc_setup.node import job_verbs

    return job_verbs.main(rest)


def _help(rest: list[str]) -> int:
    no_arguments(rest)
    print(HELP)
    return 0


# Those that go by settings; the others are counted in milliseconds
_BY_SETTINGS = frozenset(
    "start check reconfigure observe doctor longest-wait listen-anew sample-use".split()
)
# The modules of this room, and the commands of which each has the functions
_MODULES = {
    "lifecycle": "start wait status health reconfigure check rotate-key hold longest-wait",
    "looking": "observe detect doctor metrics use sample-use",
    "users": "add-user homes associate add-ground ssh-certify",
    "other_machines": "forget-node join-about give-key take-key keep-users listen-anew collect-offers "
    "carry carried",
    "saved": "backup restore saved-state",
}
_OWN = {"job": _job, "help": _help}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
COMMANDS = frozenset((*_OWN, *_PLACES))


def _command(name: str) -> Callable[[list[str]], int]:
    if name in _OWN:
        return _OWN[name]
    found: Callable[[list[str]], int] = getattr(
        lazy.module(__package__, _PLACES[name]), name.replace("-", "_")
    )
    return found
