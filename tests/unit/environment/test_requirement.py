"""Names of packages: what is one, and that nothing else ever reaches uv."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import debian, requirement, uv
from dshpc_setup.environment.model import Requirement
from dshpc_setup.machine import CommandResult
from tests.unit.image.fakes import FakeMachine, ended

UV = uv.Uv("/env/bin/uv", "/usr/bin/python3", "amd64", {})
names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
versions = st.sampled_from(["", "==2.1.0", ">=1,<2", "~=1.4", "!=3.*", "===1.0+local", "==1!2"])


@dataclass
class Noting(FakeMachine):
    """Keeps what is told on stdin."""

    inputs: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        self.inputs.append(more["stdin"])
        self.replies = {"": [ended()]}
        return super().run(argv, **more)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("numpy", Requirement("numpy")),
        ("pandas==2.2", Requirement("pandas", (), "==2.2")),
        (" scikit-learn >= 1.5 , < 2 ", Requirement("scikit-learn", (), ">=1.5,<2")),
        ("uvicorn[standard, extra]", Requirement("uvicorn", ("extra", "standard"))),
    ],
)
def test_plain_names_with_versions_are_taken(text: str, made: Requirement) -> None:
    assert requirement.parse(text) == made


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--index-url=http://evil", "option"),
        ("-r", "option"),
        ("git+https://example.org/x", "address"),
        ("x @ file:///etc", "address"),
        ("./x", "path"),
        ("/etc/passwd", "path"),
        ("x; python_version < '3'", "marker"),
        ("x.whl", "archive"),
        ("X.Tar.GZ", "archive"),
        ("numpy==", "no name"),
        ("numpy 2", "no name"),
        ("numpy\n--pre", "no name"),
        ("", "no name"),
        ("-", "option"),
        ("é", "no name"),
    ],
)
def test_all_else_is_refused_with_the_reason(text: str, why: str) -> None:
    assert requirement.parse(text) is None
    assert why in requirement.why_not(text)


def test_a_bare_version_of_python_json_is_that_one() -> None:
    assert requirement.of_pair("numpy", "2.1.0") == Requirement("numpy", (), "==2.1.0")
    assert requirement.of_pair("numpy", ">=2") == Requirement("numpy", (), ">=2")
    assert requirement.of_pair("numpy", "") == Requirement("numpy")
    assert requirement.of_pair("numpy", "2 --pre") is None


@given(st.text() | st.from_regex(r"[-./a-z]{1,5}[A-Za-z0-9=<>@;\[\] ]{0,20}", fullmatch=True))
def test_whatever_is_taken_is_no_option_path_or_address(text: str) -> None:
    made = requirement.parse(text)
    if made is not None:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._\[\],=!~<>*+-]*", str(made))
        assert requirement.parse(str(made)) == made


@given(names, versions)
def test_what_is_written_is_read_again(name: str, limits: str) -> None:
    made = requirement.parse(f"{name}{limits}")
    if made is None:
        assert name.lower().endswith((".zip", ".whl", ".tgz", ".tar", ".tbz", ".txz", ".gz"))
    else:
        assert (made.name, made.versions) == (name, limits)


@given(st.lists(st.text(), max_size=5))
def test_no_word_of_the_user_is_an_option(words: list[str]) -> None:
    wanted = [made for word in words if (made := requirement.parse(word)) is not None]
    machine = Noting()
    for each in (wanted, ()):
        uv.resolve(machine, UV, each, Path("/cwd"))
    assert machine.ran[0] == machine.ran[1]
    assert machine.inputs == ["".join(f"{each}\n" for each in wanted), ""]
    assert not any(line.startswith("-") for line in machine.inputs[0].splitlines())


def test_uv_chooses_for_the_image_and_not_for_this_machine() -> None:
    machine = Noting()
    uv.resolve(machine, UV, (), Path("/cwd"))
    assert {
        "--only-binary=:all:",
        "--python-version=3.13.5",
        "--python-platform=x86_64-manylinux_2_40",
        "--no-config",
    } <= set(machine.ran[0])
    uv.resolve(machine, replace(UV, architecture="arm64"), (), Path("/cwd"))
    assert "--python-platform=aarch64-manylinux_2_40" in machine.ran[1]


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_debian_is_asked_for_names_alone(words: list[str]) -> None:
    site = SiteFiles("CERT", "APT", {"HTTPS_PROXY": "http://user:secret@proxy:1"})
    if all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", word) for word in words):
        call = debian.argv("docker", "base", "", site, words)
        assert call[call.index("versions") + 1 :] == sorted(words)
        assert "secret" not in " ".join(call)
    else:
        with pytest.raises(ValueError, match=r"\["):
            debian.argv("docker", "base", "", site, words)
