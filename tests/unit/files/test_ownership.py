from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.files.ownership import classify, digest, is_marked


@pytest.mark.parametrize(
    "line",
    [
        "# USER_CUSTOMIZED=true",
        "#USER_CUSTOMIZED=true",
        "  # user_customized = True  ",
        "#\tUSER_CUSTOMIZED=true\r",
    ],
)
def test_the_marker_in_its_spellings(line: str) -> None:
    assert is_marked(f"ClusterName=a\n{line}\nSlurmUser=slurm\n")


def test_the_marker_behind_the_mark_of_a_windows_editor() -> None:
    assert is_marked("\ufeff# USER_CUSTOMIZED=true\nClusterName=a\n")
    assert not is_marked("ClusterName=a\n\ufeff# USER_CUSTOMIZED=true\n")


@pytest.mark.parametrize(
    "line",
    [
        "USER_CUSTOMIZED=true",
        "# USER_CUSTOMIZED=false",
        "# set USER_CUSTOMIZED=true to keep it",
        "# USER_CUSTOMIZED=truely",
        "# USER_CUSTOMIZED=true.",
    ],
)
def test_near_misses_are_no_marker(line: str) -> None:
    assert not is_marked(f"a=b\n{line}\n")


def test_owners() -> None:
    text = "ClusterName=a\n"
    assert classify(None, digest(text)) == "missing"
    assert classify(text, digest(text)) == "ours"
    assert classify(text + " ", digest(text)) == "edited"
    assert classify(text, None) == "edited"
    marked = text + "# USER_CUSTOMIZED=true\n"
    assert classify(marked, digest(marked)) == "custom"


@given(st.text(), st.text())
def test_a_file_that_differs_from_what_we_wrote_is_never_ours(ours: str, now: str) -> None:
    owner = classify(now, digest(ours))
    assert (owner == "ours") == (now == ours and not is_marked(now))
