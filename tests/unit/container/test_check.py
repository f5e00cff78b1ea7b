"""Device files of gres.conf, and Slurm's complaints made words for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import check
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError

SLURM = """ClusterName=dshpc
SelectType=select/cons_tres
ReturnToService=2
NodeName=dshpc CPUs=2 Gres=gpu:h100:2
"""
GRES = """# a comment with File=/dev/none
AutoDetect=off
Name=gpu Type=h100 File=/dev/nvidia[0-1]
"""


def candidate(slurm: str = SLURM, gres: str = GRES, *own: str) -> Candidate:
    texts = {"slurm.conf": slurm, "gres.conf": gres, "cgroup.conf": "CgroupPlugin=disabled\n"}
    return Candidate(texts, dict.fromkeys(own, "custom"), {})


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("Name=gpu File=/dev/nvidia0", ("/dev/nvidia0",)),
        ("Name=gpu file=/dev/nvidia0 # File=/dev/x", ("/dev/nvidia0",)),
        ("# File=/dev/nvidia0", ()),
        ("AutoDetect=off", ()),
        ("File=/dev/nvidia[0-2]", ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2")),
        ("File=/dev/nvidia[0,3]", ("/dev/nvidia0", "/dev/nvidia3")),
        ("File=/dev/nvidia[08-10]", ("/dev/nvidia08", "/dev/nvidia09", "/dev/nvidia10")),
        (
            "MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap3 Type=1g.10gb",
            ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3"),
        ),
        ("File=/dev/nvidia[a-b]", ("/dev/nvidia[a-b]",)),
        ("ProFile=/dev/nvidia0", ()),
    ],
)
def test_device_files_of_a_line(line: str, files: tuple[str, ...]) -> None:
    assert check.device_files(line) == files


@given(st.text(max_size=200))
def test_no_line_breaks_the_reading(line: str) -> None:
    assert all(isinstance(path, str) for path in check.device_files(line))


@given(st.integers(0, 99), st.integers(0, 99))
def test_a_range_has_all_of_its_devices(first: int, last: int) -> None:
    found = check.device_files(f"File=/dev/nvidia[{first}-{last}]")
    assert found == tuple(f"/dev/nvidia{n}" for n in range(first, last + 1))


def test_devices_that_are_there_are_no_error() -> None:
    assert check.device_error(candidate(), {"/dev/nvidia0", "/dev/nvidia1"}.__contains__) is None


def test_a_missing_device_is_named_with_its_line_and_file() -> None:
    error = check.device_error(candidate(SLURM, GRES, "gres.conf"), {"/dev/nvidia0"}.__contains__)
    assert error is not None
    assert error.brief == "config/gres.conf, line 3: /dev/nvidia1 is no device of this container."
    assert any("config/gres.conf" in step for step in error.resolution)


def test_a_missing_device_of_ours_sends_nobody_to_a_file_that_he_did_not_write() -> None:
    error = check.device_error(candidate(), lambda _: False)
    assert error is not None
    assert not any("Correct config/" in step for step in error.resolution)


def test_an_unknown_key_is_found_and_the_right_one_proposed() -> None:
    text = SLURM.replace("ReturnToService", "ReturnToServise")
    said = (
        "slurmd: error: _parse_next_key: Parsing error at unrecognized key: ReturnToServise\n"
        "slurmd: fatal: Unable to process configuration file\n"
    )
    error = check.explain(said, candidate(text, GRES, "slurm.conf"))
    assert error.brief == "config/slurm.conf, line 3: Slurm knows no 'ReturnToServise' there."
    assert error.resolution[0] == "Did you mean ReturnToService?"


def test_an_unknown_plugin_is_found_by_its_value() -> None:
    text = SLURM.replace("cons_tres", "cons_foo")
    said = "slurmctld: fatal: Can't find plugin for select/cons_foo\n"
    error = check.explain(said, candidate(text, GRES, "slurm.conf"))
    assert error.brief.startswith("config/slurm.conf, line 2: Can't find plugin")


def test_what_sound_configurations_are_told_too_is_left_out() -> None:
    said = (
        "slurmctld: error: Configured MailProg is invalid\n"
        "slurmctld: error: Could not open node state file /x/node_state: No such file\n"
        "slurmctld: fatal: Something else\n"
    )
    assert check.explain(said, candidate()).details == "Something else"


@given(st.text(max_size=300))
def test_whatever_slurm_says_becomes_an_error_with_a_next_step(said: str) -> None:
    error = check.explain(said, candidate())
    assert error.brief
    assert error.resolution


def test_the_node_is_the_one_of_the_settings_or_the_only_one() -> None:
    assert check.node_name(candidate(), "dshpc") == "dshpc"
    assert check.node_name(candidate(SLURM.replace("=dshpc CPUs", "=gpu1 CPUs")), "dshpc") == "gpu1"
    several = SLURM.replace("=dshpc CPUs", "=gpu[1-2] CPUs")
    with pytest.raises(DshpcError, match="NodeName=dshpc"):
        check.node_name(candidate(several), "dshpc")


def test_a_port_of_slurm_conf() -> None:
    assert check.port({"slurm.conf": SLURM}, "SlurmctldPort", 6817) == 6817
    assert check.port({"slurm.conf": "slurmctldport = 7000-7010\n"}, "SlurmctldPort", 1) == 7000


def test_the_host_must_bear_the_controllers_name() -> None:
    named = candidate(f"SlurmctldHost=dshpc(10.0.0.1)\n{SLURM}")
    assert check.host_error(named, "dshpc") is None
    assert check.host_error(named, "dshpc.example.org") is None
    assert check.host_error(candidate(), "anything") is None
    error = check.host_error(named, "0f3a")
    assert error is not None
    assert "0f3a" in error.brief
    assert any("--hostname dshpc" in step for step in error.resolution)
