"""Errors in the words of Docker's client: those who call it read them."""

from __future__ import annotations


class ClientError(Exception):
    """Printed on stderr; the exit code is `code`."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def none(kind: str, name: str) -> ClientError:
    return ClientError(f"Error: No such {kind}: {name}")


def refused(text: str) -> ClientError:
    return ClientError(f"Error response from daemon: {text}")


def usage(text: str) -> ClientError:
    return ClientError(text, 125)
