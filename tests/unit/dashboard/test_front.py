"""The door of a dashboard for others: what one user does keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from dshpc_setup.dashboard import front, login
from dshpc_setup.dashboard.front import Front
from dshpc_setup.dashboard.people import Theirs

PROXY = login.proxy("X-User", "10.0.0.5", "gpu.example.org")


class Writer:
    def __init__(self) -> None:
        self.said = b""

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "10.0.0.5", 40000

    def write(self, data: bytes) -> None:
        self.said += data

    async def drain(self) -> None:
        return None


class People:
    @contextlib.contextmanager
    def of(self, _: str) -> Iterator[Theirs]:
        yield Theirs(1, "cookie", None, 0.0)  # type: ignore[arg-type]


def test_one_user_has_a_share_of_all_that_are_answered(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_MOST_EACH", 2)

    async def looked() -> tuple[list[bytes], int]:
        door, led = Front(PROXY, People()), list[str]()  # type: ignore[arg-type]
        ended = asyncio.Event()

        async def lead(_asked: Any, request: Any, *_: Any) -> None:
            led.append(request.target)
            await ended.wait()

        monkeypatch.setattr(door, "_lead", lead)

        async def ask(user: str) -> bytes:
            reader, writer = asyncio.StreamReader(), Writer()
            reader.feed_data(
                f"GET / HTTP/1.1\r\nHost: gpu.example.org\r\nX-User: {user}\r\n\r\n".encode()
            )
            await door._answer(reader, writer)  # type: ignore[arg-type]
            return writer.said

        asked = [asyncio.create_task(ask("ada")) for _ in range(2)]
        while len(led) < 2:
            await asyncio.sleep(0.01)
        refused = await ask("ada")
        asked.append(asyncio.create_task(ask("bob")))
        while len(led) < 3:
            await asyncio.sleep(0.01)
        ended.set()
        answers = await asyncio.gather(*asked)
        asked = [asyncio.create_task(ask("ada"))]  # what has ended counts no more
        await asyncio.gather(*asked)
        return [refused, *answers], len(led)

    (refused, *answers), led = loop.run_until_complete(looked())
    assert refused.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert answers == [b"", b"", b""]
    assert led == 4
