"""What may take its time is done in threads that nobody waits for when the dashboard ends.

Those of a pool are waited for at the interpreter's end: a question to an engine that hangs would keep Ctrl-C
waiting as long. How many there can be at once is limited by the server's connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T]) -> _T:
    """What it returns, or raises."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[_T] = loop.create_future()

    def settle(tell: Callable[[], None]) -> None:
        if not told.done():  # who asked has gone away
            tell()

    def run() -> None:
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 -- it is raised where it was asked for
            failed = error

            def tell() -> None:
                told.set_exception(failed)
        else:

            def tell() -> None:
                told.set_result(value)

        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(settle, tell)

    threading.Thread(target=run, daemon=True).start()
    return await told
