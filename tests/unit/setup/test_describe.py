"""How systems are called where people read of them."""

from __future__ import annotations

import pytest

from dshpc_setup.facts import Platform
from dshpc_setup.setup.describe import system_name


@pytest.mark.parametrize(
    ("os_id", "version", "name"),
    [
        ("debian", "13", "Debian 13"),
        ("rhel", "8.6", "RHEL 8.6"),
        ("opensuse-leap", "15.6", "openSUSE Leap 15.6"),
        ("arch", None, "Arch Linux"),
        ("macos", "15.5", "macOS 15.5"),
        ("voidlinux", None, "Voidlinux"),
        (None, None, ""),
    ],
)
def test_a_system_has_the_name_that_people_know(
    os_id: str | None, version: str | None, name: str
) -> None:
    assert system_name(Platform("linux", os_id=os_id, os_version=version)) == name
