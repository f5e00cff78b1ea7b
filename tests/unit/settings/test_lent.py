"""Toolkits as texts: between the run, what is kept of it, the compose file and the container."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.project import trust
from dshpc_setup.settings import lent
from dshpc_setup.settings.lent import Toolkit

PARTS = st.text(
    st.characters(blacklist_categories=["Cc", "Cs"], blacklist_characters=":/="), min_size=1
)
PATHS = PARTS.filter(lambda part: part not in (".", "..")).map(lambda part: f"/srv/{part}")
TOOLKITS = st.builds(Toolkit, st.sampled_from(["cuda", "rocm"]), PATHS, PATHS)


@given(TOOLKITS)
def test_what_is_written_is_read_again(toolkit: Toolkit) -> None:
    assert lent.parse(str(toolkit)) == toolkit


@given(st.lists(TOOLKITS, max_size=5).map(tuple))
def test_the_container_is_told_the_first_of_each_kind(toolkits: tuple[Toolkit, ...]) -> None:
    told = dict(lent.told(lent.variables(map(str, toolkits))))
    assert told == {each.kind: each.place for each in reversed(toolkits)}


@pytest.mark.parametrize(
    "place",
    ["/usr", "/usr/bin", "/usr/local", "/usr/local/bin", "/usr/local/cuda/../bin", "/usr/lib/cuda",
     "/etc/cuda", "cuda", "/opt", "/", "/a:b", "/usr/local/cuda/bin"],
)  # fmt: skip
def test_the_system_is_not_covered(place: str) -> None:
    assert not lent.fits(place)
    kept = f'{{"toolkits": ["cuda:/opt/cuda:{place}"]}}'.encode()
    assert "toolkits" not in trust.usable(kept)


@pytest.mark.parametrize(
    "place",
    ["/usr/local/cuda", "/usr/local/cuda-12.4", "/usr/local/rocm", "/opt/cuda", "/opt/rocm-6.2"],
)
def test_where_they_lie_as_a_rule(place: str) -> None:
    assert lent.fits(place)
    kept = f'{{"toolkits": ["cuda:{place}:{place}"]}}'.encode()
    assert trust.usable(kept)["toolkits"] == [f"cuda:{place}:{place}"]
