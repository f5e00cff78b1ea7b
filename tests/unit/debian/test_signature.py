"""Signatures: by the library here; by gpgv in tests/integration/test_debian_fetch.py, with the same cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.debian import signature
from dshpc_setup.debian.faults import DebianError, Fault
from tests.signed import CASES, case, kept
from tests.unit.engine.fake import FakeMachine

GOOD = "[GNUPG:] NEWSIG\n[GNUPG:] GOODSIG 1 x\n[GNUPG:] VALIDSIG 1 2\n"


def test_a_good_signature_gives_the_text(tmp_path: Path) -> None:
    signed, keys = case("good")
    assert "Codename: trixie" in signature.verified(FakeMachine(), signed, kept(tmp_path, keys))


@pytest.mark.parametrize(("name", "fault"), CASES.items())
def test_another_one_is_refused(name: str, fault: Fault, tmp_path: Path) -> None:
    signed, keys = case(name)
    with pytest.raises(DebianError) as raised:
        signature.verified(FakeMachine(), signed, kept(tmp_path, keys))
    assert raised.value.fault == fault


def test_the_keys_that_we_carry_are_those_that_we_name() -> None:
    import pysequoia

    found = pysequoia.Cert.split_bytes(signature.keyring().read_bytes())
    assert [each.fingerprint.upper() for each in found] == list(signature.FINGERPRINTS)
    assert not any(each.is_revoked for each in found)


@pytest.mark.parametrize(
    ("status", "code", "fault"),
    [
        (GOOD, 0, None),
        (GOOD, 2, "bad-signature"),
        (GOOD + "[GNUPG:] ERRSIG 3 1 8 01 1 9\n[GNUPG:] NO_PUBKEY 3\n", 2, None),
        (GOOD + "[GNUPG:] BADSIG 3 x\n", 1, "bad-signature"),
        (GOOD + "[GNUPG:] EXPKEYSIG 3 x\n[GNUPG:] VALIDSIG 3 1\n", 0, "expired-key"),
        ("[GNUPG:] REVKEYSIG 3 x\n[GNUPG:] VALIDSIG 3 1\n", 0, "expired-key"),
        ("[GNUPG:] NO_PUBKEY 3\n", 2, "unknown-key"),
        ("[GNUPG:] NODATA 1\n", 2, "unsigned"),
        ("[GNUPG:] VALIDSIG 1 2\n", 0, "bad-signature"),
        ("GOODSIG\nVALIDSIG\n", 0, "bad-signature"),
        ("", None, "bad-signature"),
    ],
)
def test_what_gpgv_says_is_judged(status: str, code: int | None, fault: Fault | None) -> None:
    assert signature.judged(status, code) == fault
