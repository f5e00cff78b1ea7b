"""Connections that say nothing: any user of the machine can open them, and none keeps its owner out."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

SILENT_S = 10.0  # for a whole head; a browser sends it at once
MOST_OPEN = 150


class Connection(H11Protocol):
    """One that has not sent a whole request for `SILENT_S`, since it was opened or was last answered, is cut
    off; where there are too many, the one that is silent for longest makes room."""

    since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MOST_OPEN:
            silent = [
                each for each in self.connections if isinstance(each, Connection) and each.is_silent
            ]
            if silent:
                oldest = min(silent, key=lambda each: each.since)
                self.connections.discard(oldest)
                oldest.transport.abort()
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    @property
    def is_silent(self) -> bool:
        answered: RequestResponseCycle | None = self.cycle
        return answered is None or answered.response_complete

    def _wait(self) -> None:
        self.since = self.loop.time()
        self.loop.call_later(SILENT_S, self._look, self.since)

    def _look(self, since: float) -> None:
        # A WebSocket has taken over from one that is among the connections no more
        if self in self.connections and self.is_silent and self.since == since:
            self.transport.abort()
