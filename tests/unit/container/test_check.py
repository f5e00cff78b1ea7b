"""Device files of gres.conf, and Slurm's complaints made words for people."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import check, hardware_fit
from dshpc_setup.container.complaints import explain, while_up
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
        (f"File=/dev/nvidia[0-{'9' * 5000}]", (f"/dev/nvidia[0-{'9' * 5000}]",)),
        ("File=/dev/a[0-4095]", tuple(f"/dev/a{n}" for n in range(4096))),
        ("File=/dev/a[0-4096]", ("/dev/a[0-4096]",)),
        ("File=/dev/a[0-4090,0-9]", ("/dev/a[0-4090,0-9]",)),
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


def test_a_line_for_another_node_needs_no_device() -> None:
    more = f"{GRES}NodeName=other Name=gpu File=/dev/nvidia9\n"
    here = {"/dev/nvidia0", "/dev/nvidia1"}.__contains__
    assert check.device_error(candidate(SLURM, more), here) is None
    assert check.device_error(candidate(SLURM, more.replace("other", "dshpc")), here) is not None
    # Which of two nodes this is, nobody says: every line counts
    two = SLURM.replace("NodeName=dshpc", "NodeName=dshpc,other")
    assert check.device_error(candidate(two, more), here) is not None
    assert check.device_error(candidate(two, more), here, "dshpc") is not None


def test_an_unknown_key_is_found_and_the_right_one_proposed() -> None:
    text = SLURM.replace("ReturnToService", "ReturnToServise")
    said = (
        "slurmd: error: _parse_next_key: Parsing error at unrecognized key: ReturnToServise\n"
        "slurmd: fatal: Unable to process configuration file\n"
    )
    error = explain(said, candidate(text, GRES, "slurm.conf"))
    assert error.brief == "config/slurm.conf, line 3: Slurm knows no 'ReturnToServise' there."
    assert error.resolution[0] == "Did you mean ReturnToService?"


def test_a_line_that_is_none_is_found_by_the_number_that_slurm_says() -> None:
    said = 'slurmd: error: Parse error in file /run/dshpc/new/ask.conf line 2: "Foo=1"\n'
    error = explain(said, candidate(SLURM, GRES, "slurm.conf"))
    assert error.brief == "config/slurm.conf, line 2: Slurm cannot read it."
    assert "The line is: SelectType=select/cons_tres" in error.details
    assert "/run/dshpc" not in error.details
    far = explain(said.replace("line 2", "line 99"), candidate(SLURM, GRES, "slurm.conf"))
    assert far.brief == "Slurm refuses this configuration."


def test_of_an_unknown_key_slurm_says_both_and_the_key_tells_more() -> None:
    said = (
        'slurmd: error: Parse error in file /run/dshpc/new/gres.conf line 3: " Typ=h100"\n'
        "slurmd: error: _parse_next_key: Parsing error at unrecognized key: Typ\n"
    )
    error = explain(said, candidate(SLURM, GRES.replace("Type=", "Typ="), "gres.conf"))
    assert error.brief == "config/gres.conf, line 3: Slurm knows no 'Typ' there."
    assert error.resolution[0] == "Did you mean Type?"


def test_a_file_that_is_included_in_vain_is_told_with_its_line() -> None:
    """As slurmd 24.11.5 says it; it tries again for a minute."""
    said = (
        "slurmd: error: s_p_parse_file: cannot stat file /run/dshpc/new/extra.conf: No such file or "
        "directory, retrying in 1sec up to 60sec\n"
    )
    text = f"{SLURM}\nInclude other.conf\n  include extra.conf # mine\n"
    error = explain(said, candidate(text, GRES, "slurm.conf"))
    number = text.split("\n").index("  include extra.conf # mine") + 1
    assert error.brief.startswith(f"config/slurm.conf, line {number}: the file that it includes")
    assert error.resolution[0] == "Write the lines of that file in the place of this one."
    other = explain(said.replace("extra", "third"), candidate(text, GRES, "slurm.conf"))
    assert other.brief == "Slurm refuses this configuration."


def test_a_line_of_the_setting_sends_people_to_the_setting() -> None:
    text = SLURM + "ReturnToServise=1\n"
    said = "slurmd: error: _parse_next_key: Parsing error at unrecognized key: ReturnToServise\n"
    found = replace(candidate(text), extra=("ReturnToServise=1",))
    assert any("slurm_conf_extra" in step for step in explain(said, found).resolution)
    assert not any("slurm_conf_extra" in step for step in explain(said, candidate(text)).resolution)


def test_in_a_cluster_that_runs_a_corrected_file_needs_no_restart() -> None:
    said = "slurmd: error: _parse_next_key: Parsing error at unrecognized key: Typ\n"
    error = explain(said, candidate(SLURM, GRES.replace("Type=", "Typ="), "gres.conf"))
    step = "Then put it into effect, in the project folder: dshpc "
    assert f"{step}restart" in error.resolution
    assert f"{step}reconfigure" in while_up(error).resolution
    stays = DshpcError("It is full.", "", ("Then start the container again: dshpc restart",))
    assert while_up(stays) == stays


@pytest.mark.parametrize(
    ("whose", "commands"),
    [
        (
            "edited",
            ["dshpc restart", "configure-environment", "dshpc config accept gres.conf"],
        ),
        (
            "custom",
            ["dshpc restart", "mv config/gres.conf config/gres.conf.old && configure-environment"],
        ),
    ],
)
def test_each_step_has_one_command_that_can_be_pasted(whose: str, commands: list[str]) -> None:
    said = "slurmd: error: _parse_next_key: Parsing error at unrecognized key: Typ\n"
    found = candidate(SLURM, GRES.replace("Type=", "Typ="), "gres.conf")
    own = replace(found, customized={"gres.conf": whose})
    steps = explain(said, own).fixes
    assert [step.command for step in steps if step.command] == commands
    assert [step.words for step in steps][:2] == [
        "Did you mean Type?",
        "Correct config/gres.conf, in the project folder",
    ]


def test_a_megabyte_of_noise_is_a_short_answer() -> None:
    noise = "\n".join(f"x{n}=y{n}" for n in range(40_000))
    said = "\n".join(f'slurmd: error: bad "y{n}" and "z{n}"' for n in range(40_000, 80_000))
    error = explain(said, candidate(noise, noise, "slurm.conf"))
    assert len(error.details) < 5000


def test_an_unknown_plugin_is_found_by_its_value() -> None:
    text = SLURM.replace("cons_tres", "cons_foo")
    said = "slurmctld: fatal: Can't find plugin for select/cons_foo\n"
    error = explain(said, candidate(text, GRES, "slurm.conf"))
    assert error.brief.startswith("config/slurm.conf, line 2: Can't find plugin")


def test_what_sound_configurations_are_told_too_is_left_out() -> None:
    said = (
        "slurmctld: error: Configured MailProg is invalid\n"
        "slurmctld: error: Could not open node state file /x/node_state: No such file\n"
        "slurmctld: fatal: Something else\n"
    )
    assert explain(said, candidate()).details == "Something else"


@given(st.text(max_size=300))
def test_whatever_slurm_says_becomes_an_error_with_a_next_step(said: str) -> None:
    error = explain(said, candidate())
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


@pytest.mark.parametrize(
    "noise",
    [
        "A" * 200_000,
        " " * 200_000,
        "\n" * 100_000,
        "File=" + "a," * 100_000,
        "A =" * 70_000,
        '="' * 99_000,
    ],
)
def test_files_of_noise_are_read_in_no_time(noise: str) -> None:
    found = candidate(noise, noise, "slurm.conf", "gres.conf")
    began = time.process_time()
    check.node_name(found, "lab")
    check.host_error(found, "lab")
    check.device_error(found, lambda _: True)
    check.port(found.texts, "SlurmctldPort", 1)
    check.gres_of(found, "lab")
    explain(f"error: {noise}\nfatal: unrecognized key: {noise}", found)
    hardware_fit.following(replace(found, customized={"gres.conf": "edited"}), "lab")
    assert time.process_time() - began < 5
