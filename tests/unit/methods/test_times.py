from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.methods.description import duration
from dshpc_setup.methods.times import minutes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("90m", 90),
        ("2h", 120),
        ("1d", 1440),
        ("61s", 2),
        ("10:00", 10),
        ("90:01", 91),
        ("1:30:00", 90),
        ("1-12", 2160),
        ("1-0:30", 1470),
        ("1-00:00:01", 1441),
        ("0", 0),
        ("1:60", None),
        ("1:60:00", None),
        ("1-24", None),
        ("1.5h", None),
        ("-1", None),
        ("2 h", None),
        ("2h\n", None),
        ("", None),
        ("UNLIMITED", None),
        ("٣", None),
    ],
)
def test_times(text: str, expected: int | None) -> None:
    assert minutes(text) == expected


@given(st.integers(1, 10**6))
def test_a_duration_is_read_back(number: int) -> None:
    assert minutes(duration(number)) == number


@given(st.text("0123456789:-smhd ", max_size=12))
def test_no_text_raises(text: str) -> None:
    found = minutes(text)
    assert found is None or found >= 0
