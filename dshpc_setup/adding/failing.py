"""Why ssh came to nothing, told from what it prints, with what to do next."""

from __future__ import annotations

import re

from dshpc_setup.adding.host import Host
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.machine import CommandResult


def no_client() -> DshpcError:
    return DshpcError(
        "There is no ssh on this machine.",
        "It is how the other machine is reached.",
        (
            Fix("Install it", "sudo apt-get install openssh-client"),
            Fix(
                "Or, on Fedora and its kin", "sudo dnf install openssh-clients", step="alternative"
            ),
            Fix("Or go there and join by a token", "dshpc node token --once", step="alternative"),
        ),
    )


def lost(host: Host, said: str) -> DshpcError:
    """In the middle of it."""
    return DshpcError(
        f"The connection to {host.name} was lost.",
        said.strip(),
        (
            host.look("See whether it answers", "true"),
            "Then run this again. The other side ends by itself, and removes what it had started.",
        ),
        Exit.INCOMPLETE,
    )


def not_connected(host: Host, done: CommandResult, *, interactive: bool) -> DshpcError:
    said = done.text.strip()
    steps: tuple[str | Fix, ...] = ()
    if done.state == "timeout":
        brief = f"{host.name} did not let us in within the time."
    elif re.search(r"IDENTIFICATION HAS CHANGED|host key .* has changed", said, re.I):
        brief = f"{host.name} has another host key than before: ssh does not connect."
        steps = (
            "The machine was reinstalled, or another one answers in its place: ask who looks after it.",
            Fix("If it is right, forget the old key", f"ssh-keygen -R {_known_as(host)}"),
            Fix("Then look at the new one, and accept it", host.typed("true"), step="after"),
        )
    elif "Host key verification failed" in said:
        brief = f"The host key of {host.name} is not known here: ssh does not connect."
        steps = (
            Fix("Look at it and accept it, in a terminal", host.typed("true")),
            "Then run this again.",
        )
    elif "Permission denied" in said or "Too many authentication failures" in said:
        brief = f"{host.name} does not let this user in."
        steps = (
            Fix("Give it this user's key", f"ssh-copy-id {_port(host)}{host.name}"),
            "Or name another user: dshpc node add USER@HOST",
            *(() if interactive else ("In a terminal a password can be typed.",)),
        )
    elif "Could not resolve hostname" in said:
        brief = f"No machine is called {host.short}."
        steps = (Fix("See what its name leads to", f"getent hosts {host.short}", step="look"),)
    elif "Connection refused" in said:
        brief = f"No ssh server listens at {host.name}."
        steps = (
            Fix("On that machine", "sudo apt-get install openssh-server"),
            "Or name its port: dshpc node add -p PORT HOST",
        )
    else:
        brief = f"ssh does not reach {host.name}."
        steps = (host.look("See why", "true"),)
    code = Exit.INCOMPLETE if done.state == "timeout" or "timed out" in said else Exit.ERROR
    return DshpcError(brief, f"{said}\nNothing was changed.".strip(), steps, code)


def _port(host: Host) -> str:
    return f"-p {host.port} " if host.port is not None else ""


def _known_as(host: Host) -> str:
    return host.short if host.port in (None, 22) else f"'[{host.short}]:{host.port}'"
