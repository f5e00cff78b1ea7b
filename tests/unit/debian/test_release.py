"""What an archive says of itself."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.debian import release
from dshpc_setup.debian.faults import DebianError

NOW = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)
HASH = "0123456789abcdef" * 4
PATH = "main/binary-amd64/Packages.xz"


def dated(when: datetime) -> str:
    return when.strftime("%a, %d %b %Y %H:%M:%S UTC")


def text(**changed: str | None) -> str:
    told: dict[str, str | None] = {
        "Suite": "stable",
        "Codename": "trixie",
        "Date": dated(NOW - timedelta(days=9)),
        "Acquire-By-Hash": "yes",
        "SHA256": f"\n {HASH}  77 {PATH}\n {HASH} 5 main/binary-arm64/Packages.gz",
        **{key.replace("_", "-"): value for key, value in changed.items()},
    }
    return "".join(f"{key}: {value}\n" for key, value in told.items() if value is not None)


@pytest.mark.parametrize("suite", ["stable", "trixie"])
def test_it_is_read(suite: str) -> None:
    found = release.check(text(), suite, NOW)
    path, listed = release.packages_file(found, "amd64")
    assert (path, listed) == (PATH, release.Listed(HASH, 77))
    assert found.by_hash
    assert release.by_hash(path, listed) == f"main/binary-amd64/by-hash/SHA256/{HASH}"
    with pytest.raises(DebianError) as raised:
        release.packages_file(found, "arm64")
    assert raised.value.fault == "no-index"


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"Codename": "sid", "Suite": "unstable"}, "suite"),
        ({"Valid_Until": dated(NOW - timedelta(minutes=1))}, "expired"),
        ({"Valid_Until": "next week"}, "expired"),
        ({"Date": dated(NOW + timedelta(days=2))}, "future"),
        ({"Date": None}, "future"),
    ],
)
def test_what_is_not_in_force_is_refused(changed: dict[str, str | None], fault: str) -> None:
    with pytest.raises(DebianError) as raised:
        release.check(text(**changed), "trixie", NOW)
    assert raised.value.fault == fault


def test_until_the_last_moment_it_is_in_force() -> None:
    release.check(text(Valid_Until=dated(NOW)), "trixie", NOW)


@given(st.text(alphabet="Date: SuiteCodnam\n0123456789abcdefSHA256,Valid-Until UTC", max_size=300))
def test_whatever_stands_there_it_is_read_or_refused(anything: str) -> None:
    try:
        release.check(anything, "trixie", NOW)
    except DebianError as error:
        assert error.fault in ("suite", "expired", "future")
