"""The Docker engine, asked through its SDK."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.facts import State
from dshpc_setup.machine import Reply, docker_socket

_DEFAULT_SOCKET = "/var/run/docker.sock"
_REFUSALS = (401, 403)
_KEPT_TEXT = 500
CHOICE = ("DOCKER_HOST", "DOCKER_CONTEXT")
"""The variables that choose an engine."""


def ask(deadline_s: float) -> Reply:
    """`{"version", "info", "host", "context"}` of the engine that `docker` would talk to.

    DOCKER_HOST, DOCKER_CONTEXT and the current context count, in that order, as for the CLI. Where
    no engine answers, the value holds `host` and `context` alone. An endpoint that never answers is
    left behind in a thread that does not hold up the exit.
    """
    if _by_default() and _is_surely_missing(_DEFAULT_SOCKET):
        # As the SDK would say it, without a tenth of a second for its import.
        host = f"unix://{_DEFAULT_SOCKET}"
        value = {"host": host, "context": "default"}
        return Reply("absent", value, host, "No such file or directory", 2)
    started = time.monotonic()
    if (path := _local_socket()) is not None:
        given = os.environ.get("DOCKER_HOST") or f"unix://{path}"
        found = docker_socket.ask(path, {"host": given, "context": "default"}, deadline_s)
        if found is not None:
            return found
        deadline_s = max(0.1, deadline_s - (time.monotonic() - started))
    given = os.environ.get("DOCKER_HOST", "")
    if given.startswith("ssh://"):
        return _by_command({"host": given, "context": "default"}, deadline_s)
    box: list[Reply] = []
    where: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: box.append(_ask(deadline_s, where)), daemon=True)
    thread.start()
    thread.join(deadline_s)
    if not box:
        host = str(where.get("host") or "docker")
        return Reply("timeout", dict(where), host, f"no answer within {deadline_s:g} s")
    return box[0]


def _local_socket() -> str | None:
    """The path of the engine's socket, where nothing but a path is needed to ask it."""
    host = os.environ.get("DOCKER_HOST", "")
    if host:
        return host.removeprefix("unix://") if host.startswith("unix:///") else None
    return _DEFAULT_SOCKET if _by_default() else None


def _by_default() -> bool:
    """Whether nothing names another engine than that of the default socket."""
    if any(os.environ.get(name) for name in CHOICE):
        return False
    folder = os.environ.get("DOCKER_CONFIG") or os.path.join(os.path.expanduser("~"), ".docker")
    try:
        with open(os.path.join(folder, "config.json"), "rb") as file:
            config = foreign.of_file(file)
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError):
        return False  # the SDK may read more of it than we can
    return isinstance(config, dict) and config.get("currentContext") in (None, "", "default")


def _is_surely_missing(path: str) -> bool:
    """A folder that may not be searched looks empty as well: that is no absence."""
    return not os.path.lexists(path) and os.access(os.path.dirname(path), os.X_OK)


def _ask(deadline_s: float, where: dict[str, Any]) -> Reply:
    """The engine's answer; `where` is filled as soon as it is known who is asked."""
    try:
        import docker

        arguments, context = _endpoint()
        where["host"] = str(arguments.get("base_url") or f"unix://{_DEFAULT_SOCKET}")
        where["context"] = context
        if where["host"].startswith("ssh://"):
            return _by_command(where, deadline_s)
        client = docker.APIClient(version="auto", timeout=max(1, int(deadline_s)), **arguments)
        try:
            value = {"version": client.version(), "info": client.info(), **where}
        finally:
            client.close()
        return Reply("present", value, where["host"])
    except Exception as error:  # noqa: BLE001  (the SDK lets many layers' errors through)
        source = str(where.get("host") or "docker")
        code = _status_of(error) or getattr(error, "errno", None)
        return Reply(_state_of(error), dict(where), source, _innermost(error), code)


def _endpoint() -> tuple[dict[str, Any], str]:
    """What the SDK's client needs for the endpoint that the CLI would use, and the context's name."""
    from docker.utils import kwargs_from_env

    if os.environ.get("DOCKER_HOST"):
        # The CLI too calls it "default", whatever context is the current one.
        arguments: dict[str, Any] = dict(kwargs_from_env())
        name = "default"
    else:
        from docker.context import ContextAPI
        from docker.context.config import get_current_context_name

        name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name() or "default"
        context = ContextAPI.get_context(name)
        if context is None:
            raise ValueError(f"there is no Docker context {name!r}")
        arguments = {}
        if context.Host:
            arguments["base_url"] = context.Host
        if context.TLSConfig:
            arguments["tls"] = context.TLSConfig
    return arguments, name


def _by_command(where: dict[str, Any], deadline_s: float) -> Reply:
    """An engine behind ssh, asked by the docker command: the SDK has an ssh of its own for that."""
    from dshpc_setup.machine import commands

    until = time.monotonic() + deadline_s
    value = dict(where)
    for key, asked in (("version", "{{json .Server}}"), ("info", "{{json .}}")):
        argv = ["docker", key, "--format", asked]
        left_s = max(0.1, until - time.monotonic())
        result = commands.run(argv, deadline_s=left_s, env=os.environ)
        if not result.ok:
            words = (result.stderr or result.stdout).strip()[-_KEPT_TEXT:] or "it said nothing"
            state: State = "error" if result.state == "present" else result.state
            if result.state == "absent":
                state, words = (
                    "error",
                    "the docker command is needed to reach it, and not installed",
                )
            elif state == "error" and "permission denied" in words.lower():
                state = "denied"
            elif state == "timeout":
                words = f"no answer within {deadline_s:g} s"
            return Reply(state, dict(where), where["host"], words, result.code)
        try:
            value[key] = foreign.value(result.stdout)
        except (ValueError, RecursionError):
            words = f"its answer is no JSON: {result.stdout.strip()[:_KEPT_TEXT]!r}"
            return Reply("error", dict(where), where["host"], words)
    return Reply("present", value, where["host"])


def _chain(error: BaseException) -> list[BaseException]:
    """The error and all that it wraps, outermost first."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting and len(found) < 20:
        item = waiting.pop(0)
        if isinstance(item, BaseException) and item not in found:
            found.append(item)
            waiting += [item.__cause__, item.__context__, *item.args]
            waiting.append(getattr(item, "reason", None))
    return found


def _status_of(error: BaseException) -> int | None:
    """401 or 403: the word of an authorization plugin, or of a proxy before the engine; 502: of a proxy
    that finds no engine behind it."""
    told = (getattr(item, "status_code", None) for item in _chain(error))
    return next((code for code in told if code in (*_REFUSALS, 502)), None)


def _state_of(error: BaseException) -> State:
    kinds = _chain(error)
    names = " ".join(type(item).__name__ for item in kinds)
    if any(isinstance(item, PermissionError) for item in kinds):
        return "denied"
    if _status_of(error) in _REFUSALS:
        return "denied"
    if any(isinstance(item, (FileNotFoundError, ConnectionRefusedError)) for item in kinds):
        return "absent"  # no socket, or one that nobody listens on
    if any(isinstance(item, TimeoutError) for item in kinds) or "Timeout" in names:
        return "timeout"
    return "error"


def _innermost(error: BaseException) -> str:
    chain = _chain(error)
    for item in chain:
        told = getattr(
            item, "explanation", None
        )  # the engine's own words: "client version 1.22 ..."
        if isinstance(told, str) and told.strip():
            return told.strip()
    for item in chain:
        garbage = getattr(item, "doc", None)  # what was to be JSON
        if isinstance(garbage, str):
            return f"its answer is no JSON: {garbage.strip()[:_KEPT_TEXT]!r}"
    for item in chain:
        if isinstance(item, OSError) and item.errno is not None and item.strerror:
            return item.strerror
    return str(error) or type(error).__name__
