"""The Docker engine, asked through its SDK."""

from __future__ import annotations

import threading
from typing import Any

from dshpc_setup.facts import State
from dshpc_setup.machine import Reply


def ask(deadline_s: float) -> Reply:
    """`{"version": ..., "info": ..., "host": endpoint}` of the engine that `docker` would talk to.

    DOCKER_HOST, DOCKER_CONTEXT and the current context count, in that order, as for the CLI. An
    endpoint that never answers is left behind in a thread that does not hold up the exit.
    """
    box: list[Reply] = []
    thread = threading.Thread(target=lambda: box.append(_ask(deadline_s)), daemon=True)
    thread.start()
    thread.join(deadline_s)
    if not box:
        return Reply("timeout", None, "docker", f"no answer within {deadline_s:g} s")
    return box[0]


def _ask(deadline_s: float) -> Reply:
    host = "docker"
    try:
        import docker

        arguments = _endpoint()
        host = str(arguments.get("base_url") or "unix:///var/run/docker.sock")
        client = docker.APIClient(version="auto", timeout=max(1, int(deadline_s)), **arguments)
        try:
            value = {"version": client.version(), "info": client.info(), "host": host}
        finally:
            client.close()
        return Reply("present", value, host)
    except Exception as error:  # noqa: BLE001  (the SDK lets many layers' errors through)
        text = _innermost(error)
        return Reply(_state_of(error), None, host, text, getattr(error, "errno", None))


def _endpoint() -> dict[str, Any]:
    """Arguments of the SDK's client for the endpoint that the docker CLI would use."""
    import os

    from docker.utils import kwargs_from_env

    if os.environ.get("DOCKER_HOST"):
        arguments: dict[str, Any] = dict(kwargs_from_env())
    else:
        from docker.context import ContextAPI

        name = os.environ.get("DOCKER_CONTEXT")
        context = ContextAPI.get_context(name) if name else ContextAPI.get_current_context()
        if context is None:
            raise ValueError(f"there is no Docker context {name!r}")
        arguments = {}
        if context.Host:
            arguments["base_url"] = context.Host
        if context.TLSConfig:
            arguments["tls"] = context.TLSConfig
    if str(arguments.get("base_url", "")).startswith("ssh://"):
        arguments["use_ssh_client"] = True  # the user's own ssh configuration, as the CLI does
    return arguments


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


def _state_of(error: BaseException) -> State:
    kinds = _chain(error)
    names = " ".join(type(item).__name__ for item in kinds)
    if any(isinstance(item, PermissionError) for item in kinds):
        return "denied"
    if any(isinstance(item, (FileNotFoundError, ConnectionRefusedError)) for item in kinds):
        return "absent"  # no socket, or one that nobody listens on
    if any(isinstance(item, TimeoutError) for item in kinds) or "Timeout" in names:
        return "timeout"
    return "error"


def _innermost(error: BaseException) -> str:
    for item in _chain(error):
        if isinstance(item, OSError) and item.errno is not None and item.strerror:
            return item.strerror
    return str(error) or type(error).__name__
