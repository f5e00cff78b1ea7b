"""The token of a join: where to ask, by which certificate to know who answers, and a secret.

One word of letters, digits, "-" and "_", so that it survives a chat and a shell.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import struct
import zlib
from dataclasses import dataclass

from dshpc_setup.errors import DshpcError, usage_error

_BEGIN = "dshpc1-"
_FORM = struct.Struct("!4sH32s6s16s")
_SUM = struct.Struct("!I")
ID_BYTES, SECRET_BYTES = 6, 16


@dataclass(frozen=True)
class Token:
    """`pin`: SHA-256 of the service's certificate (DER), hex; `id` names it in logs and is no secret."""

    address: str
    port: int
    pin: str
    id: str
    secret: str

    def text(self) -> str:
        body = _FORM.pack(
            ipaddress.IPv4Address(self.address).packed,
            self.port,
            bytes.fromhex(self.pin),
            bytes.fromhex(self.id),
            bytes.fromhex(self.secret),
        )
        whole = body + _SUM.pack(zlib.crc32(body))
        return _BEGIN + base64.urlsafe_b64encode(whole).decode().rstrip("=")


def read(text: str) -> Token:
    """Raises DshpcError (usage) for what is no token, or not a whole one."""
    found = text.strip()
    if not found.startswith(_BEGIN):
        raise _none("It begins with dshpc1- as dshpc node token prints it.")
    body = found.removeprefix(_BEGIN)
    try:
        if not body.isascii():
            raise ValueError
        whole = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _none("A character of it is another one.") from None
    if len(whole) != _FORM.size + _SUM.size:
        raise _none(f"It has {len(found)} characters, and a whole one has {LENGTH}.")
    if _SUM.unpack(whole[_FORM.size :])[0] != zlib.crc32(whole[: _FORM.size]):
        raise _none("A character of it is another one.")
    address, port, pin, number, secret = _FORM.unpack(whole[: _FORM.size])
    return Token(str(ipaddress.IPv4Address(address)), port, pin.hex(), number.hex(), secret.hex())


LENGTH = len(_BEGIN) + -(-(_FORM.size + _SUM.size) * 8 // 6)


def _none(why: str) -> DshpcError:
    return usage_error(
        "This is not the token of a cluster.",
        why,
        "Copy the whole line that dshpc node token prints on the controller's machine.",
    )
