"""The keys that a user has: which open a session, and which need nobody to type."""

from __future__ import annotations

import base64
from pathlib import Path

from dshpc_setup.ssh import own_keys


def key(cipher: str) -> str:
    body = b"openssh-key-v1\0" + len(cipher).to_bytes(4, "big") + cipher.encode() + b"\0" * 90
    lines = base64.encodebytes(body).decode()
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}-----END OPENSSH PRIVATE KEY-----\n"


def pair(folder: Path, name: str, private: str, public: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(private)
    (folder / f"{name}.pub").write_text(public)


def test_keys_without_a_passphrase_come_first_the_usual_ones_before_others(tmp_path: Path) -> None:
    pair(tmp_path, "aaa", key("none"), "ssh-ed25519 A")
    pair(tmp_path, "id_ed25519", key("aes256-ctr"), "ssh-ed25519 B")
    pair(tmp_path, "id_rsa", "-----BEGIN RSA PRIVATE KEY-----\nx\n", "ssh-rsa C")
    locked = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nx\n"
    pair(tmp_path, "old", locked, "ssh-rsa D")
    pair(tmp_path / "dshpc", "id_ed25519", key("none"), "ssh-ed25519 E")
    (tmp_path / "torn").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n!!\n")
    (tmp_path / "torn.pub").write_text("ssh-ed25519 F")
    found = [str(path.relative_to(tmp_path)) for path in own_keys.usable(tmp_path)]
    assert found == ["id_rsa", "aaa", "dshpc/id_ed25519"]


def test_who_may_log_in_here_and_own_keys_open_a_session_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "authorized_keys").write_text('# mine\n\nfrom="10.0.0.1" ssh-rsa A\nssh-rsa B\n')
    pair(tmp_path, "id_rsa", "x", "ssh-rsa B\n")
    (tmp_path / "colleague.pub").write_text("ssh-rsa C\n")  # without its other half
    assert own_keys.public(tmp_path) == ('from="10.0.0.1" ssh-rsa A', "ssh-rsa B")
    assert own_keys.public(tmp_path / "none") == ()
