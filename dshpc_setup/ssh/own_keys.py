"""The user's own keys, as ~/.ssh has them: which open a session, and with which a client comes."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

_USUAL = ("id_ed25519", "id_ecdsa", "id_rsa")
_MOST_BYTES = 1 << 18
_MAGIC = b"openssh-key-v1\0"
OWN = "dshpc"  # our folder in ~/.ssh
IDENTITY = "id_ed25519"  # made there for who has no key that needs no passphrase


def public(ssh: Path) -> tuple[str, ...]:
    """The lines of authorized_keys for the user's jobs: whoever may log in here as this user, and the keys
    of which this user has both halves."""
    files = [ssh / "authorized_keys", *(path.with_suffix(".pub") for path in _pairs(ssh))]
    lines = [line for path in files for line in _text(path).splitlines()]
    kept = (line.strip() for line in lines)
    return tuple(dict.fromkeys(line for line in kept if line and not line.startswith("#")))


def usable(ssh: Path) -> list[Path]:
    """Private keys that need no passphrase, the usual ones first."""
    return [path for path in _pairs(ssh) if _is_open(_text(path))]


def _pairs(ssh: Path) -> list[Path]:
    names = sorted(path.stem for path in ssh.glob("*.pub"))
    usual = [name for name in _USUAL if name in names]
    paths = [ssh / name for name in (*usual, *(name for name in names if name not in usual))]
    return [path for path in (*paths, ssh / OWN / IDENTITY) if path.is_file()]


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return ""


def _is_open(text: str) -> bool:
    """OpenSSH's PROTOCOL.key: the name of the cipher stands behind the magic; PEM says it in a header."""
    lines = text.split()
    if not lines or "ENCRYPTED" in text:
        return False
    if "BEGIN OPENSSH PRIVATE KEY" not in text:
        return "PRIVATE KEY-----" in text
    body = "".join(text.partition("KEY-----")[2].partition("-----END")[0].split())
    try:
        raw = base64.b64decode(body, validate=True)
    except binascii.Error:
        return False
    return raw.startswith(_MAGIC + b"\0\0\0\x04none")


def folder() -> Path:
    """~/.ssh by $HOME, as shells have it."""
    named = os.environ.get("HOME", "")
    return Path(named) / ".ssh" if os.path.isabs(named) else of_account()


def of_account() -> Path:
    """~/.ssh as OpenSSH has it, which does not look at $HOME."""
    import pwd

    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".ssh"
    except KeyError:  # whom OpenSSH's client refuses
        return Path("/nonexistent/.ssh")
