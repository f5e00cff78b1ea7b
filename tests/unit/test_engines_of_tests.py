"""Which engine a test's cluster is on, by the line of its file and `--engine`."""

from __future__ import annotations

import pytest

from tests.integration.engines import chosen


@pytest.mark.parametrize(
    ("names", "told", "expected"),
    [
        (("builtin", "docker"), None, "builtin"),
        (("builtin", "docker"), "docker", "docker"),
        (("docker", "builtin"), None, "docker"),
    ],
)
def test_the_first_is_the_default(names: tuple[str, ...], told: str | None, expected: str) -> None:
    assert chosen(pytest.mark.engines(*names).mark, told) == expected


def test_what_cannot_be_elsewhere_stays_and_says_why() -> None:
    assert chosen(pytest.mark.engines("docker", why="rights").mark, "builtin") == "docker"
    for wrong in (
        pytest.mark.engines("docker"),
        pytest.mark.engines("builtin", "docker", why="no reason"),
        pytest.mark.engines("dockre", why="mistyped"),
        pytest.mark.engines(why="none"),
    ):
        with pytest.raises(pytest.UsageError):
            chosen(wrong.mark, None)
    with pytest.raises(pytest.UsageError, match="on which engine"):
        chosen(None, "builtin")
