"""Whether Debian has signed a text: by gpgv where the machine has it, else by a library (Sequoia).

The keys are those of KEYRING, and no other: no setting and no key of the machine's is believed.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dshpc_setup import resources
from dshpc_setup.debian.faults import DebianError, Fault
from dshpc_setup.machine import Machine

KEYRING = "debian/keyring.pgp"
"""Of the package debian-archive-keyring 2025.1 of trixie (its SHA-256:
9ea7778e443144ca490668737a8ab22dd3e748bb99e805e22ec055abeb3c7fac), joined: the keys that sign bookworm's and
trixie's archives, with the fingerprints FINGERPRINTS."""
FINGERPRINTS = (
    "B8B80B5B623EAB6AD8775C45B7C5D7D6350947F8",  # archive, 12/bookworm
    "05AB90340C0C5E797F44A8C8254CF3B5AEC0A8F0",  # security archive, 12/bookworm
    "4D64FEC119C2029067D6E791F8D2585B8783D481",  # stable release, 12/bookworm
    "04B54C3CDCA79751B16BC6B5225629DF75B188BD",  # archive, 13/trixie
    "5E04A1E3223A19A20706E20F9904613D4CCE68C6",  # security archive, 13/trixie
    "41587F7DB8C774BCCF131416762F67A0B2C39DE4",  # stable release, 13/trixie
)
_ASK_S = 20.0
_SHAPE = re.compile(
    rb"-----BEGIN PGP SIGNED MESSAGE-----\n.*\n-----BEGIN PGP SIGNATURE-----\n.*\n"
    rb"-----END PGP SIGNATURE-----\n?",
    re.DOTALL,
)


def keyring() -> Path:
    return resources.package() / KEYRING


def verified(machine: Machine, signed: bytes, keys: Path | None = None) -> str:
    """The text that is signed, as the verifier gives it out; DebianError without a good signature of ours.

    What has other keys' signatures beside one of ours is believed, as apt does: at a change of Debian's keys
    both sign. One that is wrong, or whose key has expired or was revoked, spoils all.
    """
    plain = signed.replace(b"\r\n", b"\n")
    if not _SHAPE.fullmatch(plain) or plain.count(b"-----BEGIN PGP SIGN") != 2:
        raise DebianError("unsigned", plain[:80].decode(errors="replace"))
    keys = keys or keyring()
    text = _by_gpgv(machine, plain, keys) if machine.which("gpgv") else _by_library(plain, keys)
    return text.decode("utf-8", errors="replace")


def _by_gpgv(machine: Machine, signed: bytes, keys: Path) -> bytes:
    with tempfile.TemporaryDirectory(prefix="dshpc-signature.") as made:
        place = Path(made)
        (place / "signed").write_bytes(signed)
        out = place / "text"
        argv = ["gpgv", "--status-fd", "1", "--weak-digest", "SHA1", "--homedir", made]
        argv += ["--keyring", str(keys), "--output", str(out), str(place / "signed")]
        done = machine.run(argv, deadline_s=_ASK_S)
        fault = judged(done.stdout, done.code)
        if fault is not None:
            raise DebianError(fault, done.text[-2000:])
        return out.read_bytes()


def judged(status: str, code: int | None) -> Fault | None:
    """What gpgv's lines of --status-fd come to: the fault, or None where the text can be believed. Pure.

    GOODSIG comes before the VALIDSIG of the same signature (doc/DETAILS of GnuPG).
    """
    words = [line.split()[1:] for line in status.splitlines() if line.startswith("[GNUPG:] ")]
    said = [word[0] for word in words if word]
    if "BADSIG" in said:
        return "bad-signature"
    if {"EXPKEYSIG", "EXPSIG", "REVKEYSIG"} & set(said):
        return "expired-key"
    good = [one for one, two in itertools.pairwise(said) if one == "GOODSIG" and two in _AFTER]
    if good and (code == 0 or "NO_PUBKEY" in said):
        return None
    if "NO_PUBKEY" in said:
        return "unknown-key"
    return "unsigned" if "NODATA" in said else "bad-signature"


_AFTER = ("VALIDSIG", "NOTATION_NAME", "NOTATION_DATA", "NOTATION_FLAGS", "POLICY_URL")


def _by_library(signed: bytes, keys: Path) -> bytes:
    try:
        import pysequoia
    except ImportError:
        raise DebianError("no-verifier") from None
    raw = keys.read_bytes()
    certificates = pysequoia.Cert.split_bytes(raw)
    asked: list[str] = []

    def known(ids: list[str]) -> Any:
        asked.extend(ids)
        return certificates

    try:
        found = pysequoia.verify(bytes=signed, store=known)
    except Exception as error:  # noqa: BLE001  (RuntimeError and others, by the library's release)
        said = str(error).partition("\n")[0]
        raise DebianError(
            _why(asked, raw, [each.expiration for each in certificates]), said
        ) from None
    # A signature from before the end of its key is good for the library
    now = datetime.now(timezone.utc)
    ends = {each.fingerprint: each.expiration for each in certificates}
    ours = [ends[each.certificate] for each in found.valid_sigs if each.certificate in ends]
    if not ours or found.bytes is None:
        raise DebianError("unknown-key", ", ".join(asked))
    if all(end is not None and end < now for end in ours):
        raise DebianError("expired-key", ", ".join(asked))
    return bytes(found.bytes)


def _why(asked: list[str], keys: bytes, ends: list[datetime | None]) -> Fault:
    """Why no signature is good: by the keys that made them. A key's own signature, and a subkey's on itself,
    holds its fingerprint."""
    if not any(bytes.fromhex(each) in keys for each in asked):
        return "unknown-key" if asked else "unsigned"
    now = datetime.now(timezone.utc)
    return (
        "expired-key" if any(each is not None and each < now for each in ends) else "bad-signature"
    )
