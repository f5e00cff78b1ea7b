"""Connections that say nothing make room, and none that is answered is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from dshpc_setup.dashboard import connections
from dshpc_setup.dashboard.connections import Connection

HEAD = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Transport:
    """What a connection is told of its socket."""

    def __init__(self) -> None:
        self.written, self.is_cut = b"", False

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_cut = True

    close = abort

    def is_closing(self) -> bool:
        return self.is_cut

    def get_extra_info(self, _: str) -> None:
        return None

    def resume_reading(self) -> None:
        return None

    pause_reading = resume_reading


def opener(answers: asyncio.Event) -> Callable[[], tuple[Connection, Transport]]:
    """What opens connections to a server that answers from that event on."""

    async def app(_scope: Any, _receive: Any, send: Callable[[Any], Any]) -> None:
        await answers.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"page"})

    config = uvicorn.Config(app, http=Connection, lifespan="off", log_level="critical")
    config.load()
    state = ServerState()

    def opened() -> tuple[Connection, Transport]:
        made = Connection(config=config, server_state=state, app_state={})
        transport = Transport()
        made.connection_made(transport)  # type: ignore[arg-type]
        return made, transport

    return opened


@pytest.mark.parametrize(
    ("sent", "answered", "is_cut"),
    [
        (b"", False, True),
        (HEAD[:-2], False, True),
        (HEAD, False, False),  # its answer takes as long as it takes
        (HEAD, True, True),
        (HEAD + HEAD[:5], True, True),
    ],
)
def test_who_sends_no_whole_request_is_cut_off(
    sent: bytes,
    answered: bool,
    is_cut: bool,
    loop: asyncio.AbstractEventLoop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "SILENT_S", 0.05)

    async def looked() -> tuple[bool, bytes]:
        answers = asyncio.Event()
        made, transport = opener(answers)()
        if sent:
            made.data_received(sent)
        if answered:
            answers.set()
        await asyncio.sleep(0.5)
        found = transport.is_cut, transport.written
        answers.set()
        await asyncio.sleep(0.01)  # its task ends
        return found

    was_cut, written = loop.run_until_complete(looked())
    assert (was_cut, b"page" in written) == (is_cut, answered)


def test_the_one_that_is_silent_for_longest_makes_room(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_OPEN", 3)

    async def looked() -> list[bool]:
        answers = asyncio.Event()
        open_one = opener(answers)
        busy, first = open_one()
        busy.data_received(HEAD)
        rest = []
        for _ in range(4):
            await asyncio.sleep(0.01)
            rest.append(open_one()[1])
        answers.set()
        await asyncio.sleep(0.01)
        return [each.is_cut for each in (first, *rest)]

    assert loop.run_until_complete(looked()) == [False, True, True, False, False]
