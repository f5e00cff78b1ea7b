"""The test container: its command line, its end, its removal in every case."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.passthrough import Attempt, Bench, findings
from dshpc_setup.passthrough.expected import Expected, expect
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.look import SCRIPT
from dshpc_setup.passthrough.trial import arguments, attempt
from tests.unit.passthrough.docker import NOTHING_LEFT, Docker, name_of
from tests.unit.passthrough.made import TIMEOUT, card, ended, facts, on, planned, seen

TWO = facts(card(0), card(1))
EXPECTED = expect(TWO, planned(TWO), True, {})
ROW = Attempt("device-request", "untested", "", handover=Handover("device-request"))
BENCH = Bench("base:1", (1000, 993))


def tried(machine: Any, bench: Bench = BENCH) -> Attempt:
    return attempt(machine, TWO, ROW, EXPECTED, bench)


def test_the_whole_command_line() -> None:
    handover = Handover(
        "cdi", ids=("nvidia.com/gpu=all",), devices=("/dev/kfd:/dev/kfd",), group_add=(993,),
        environment={"A": "b c"},
    )  # fmt: skip
    assert arguments("name", handover, EXPECTED, BENCH) == [
        "docker", "run", "--rm", "--pull", "never", "--name", "name", "--label", "org.dshpc.test=1",
        "--stop-timeout", "0",
        "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
        "--user", "1000:993",
        "--device", "nvidia.com/gpu=all", "--device", "/dev/kfd:/dev/kfd", "--group-add", "993",
        "--env", "A=b c",
        "--entrypoint", "/bin/sh", "--", "base:1", "-c", SCRIPT, "sh",
        "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm",
        "--", "libnvidia-ml.so.1", "libcuda.so.1",
    ]  # fmt: skip


@given(st.text(min_size=1) | st.sampled_from(["--privileged", "-v", "--"]))
def test_whatever_the_image_is_called_it_is_no_option(image: str) -> None:
    argv = arguments("name", Handover("device-request"), EXPECTED, Bench(image))
    end = argv.index("--")  # where Docker's options end
    assert argv[end + 1 : end + 4] == [image, "-c", SCRIPT]
    assert image not in argv[:end] or image in arguments(
        "name", Handover("device-request"), EXPECTED, Bench("x")
    )


def test_what_works_is_said_in_numbers_and_nothing_is_left_to_remove() -> None:
    machine = Docker(ended(0, seen(0, 1)))
    done = tried(machine)
    assert (done.state, done.reason, done.ms) == (
        "works", "all 2 GPUs were seen and opened in a test container", 1.0,
    )  # fmt: skip
    assert len(machine.calls) == 1
    assert machine.deadlines == [60.0]


def test_what_the_engine_lost_is_asked_for_once_more() -> None:
    machine = Docker(ended(0, ""), ended(0, seen(0, 1)))
    assert tried(machine).state == "works"
    assert len({name_of(call) for call in machine.calls}) == 2
    mute = Docker(ended(0, ""), ended(0, ""))
    assert tried(mute).finding == findings.IMAGE_WITHOUT_SHELL


def test_one_gpu_is_not_all_of_them() -> None:
    one = facts(card(0))
    expected = expect(one, planned(one), True, {})
    done = attempt(Docker(ended(0, seen(0))), one, ROW, expected, BENCH)  # type: ignore[arg-type]
    assert done.reason == "the GPU was seen and opened in a test container"


def test_what_was_said_is_kept_whole() -> None:
    machine = Docker(ended(125, "out", "some\nwords"), NOTHING_LEFT)
    done = tried(machine)
    assert (done.state, done.evidence) == ("fails", ("some\nwords\nout",))
    assert done.handover == ROW.handover
    short = tried(Docker(ended(0, seen(0))))
    assert (short.finding, short.evidence) == (findings.FEWER_GPUS, (seen(0).strip(),))


def test_a_hanging_container_is_removed_by_its_name() -> None:
    machine = Docker(TIMEOUT, ended(0))
    done = tried(machine, Bench("base", deadline_s=7.0))
    assert (done.state, done.finding) == ("fails", findings.TEST_HUNG)
    assert "within 7 s" in done.reason
    assert "still there" not in done.reason
    started, removed = machine.calls
    assert removed == ("docker", "rm", "--force", name_of(started))


def test_an_interrupted_container_is_removed_by_its_name() -> None:
    machine = Docker(KeyboardInterrupt(), ended(0))
    with pytest.raises(KeyboardInterrupt):
        tried(machine)
    started, removed = machine.calls
    assert removed == ("docker", "rm", "--force", name_of(started))


def test_a_container_that_stays_is_named() -> None:
    machine = Docker(TIMEOUT, TIMEOUT)
    done = tried(machine)
    assert f"docker rm -f {name_of(machine.calls[0])}" in done.reason


def test_podman_is_asked_once_more_for_its_true_words() -> None:
    hidden = ended(1, "", "docker: unable to upgrade to tcp, received 500")
    words = "Error response from daemon: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=9"
    machine = Docker(hidden, ended(1, "", words), ended(0))
    podman = on(TWO, kind="podman", cdi_folders=())
    row = Attempt("cdi", "untested", "", handover=Handover("cdi", ids=("nvidia.com/gpu=9",)))
    done = attempt(machine, podman, row, EXPECTED, BENCH)  # type: ignore[arg-type]
    assert done.finding == findings.NO_CDI_SPEC
    assert words in done.evidence[0]
    run, start, remove = machine.calls
    assert start == ("docker", "start", name_of(run))
    assert remove[-1] == name_of(run)


@pytest.mark.parametrize("again", [ended(0), TIMEOUT])
def test_a_second_start_that_says_nothing_changes_nothing(again: Any) -> None:
    machine = Docker(
        ended(1, "", "docker: unable to upgrade to tcp, received 500"), again, ended(0)
    )
    done = tried(machine)
    assert (done.finding, len(machine.calls)) == (None, 3)
    assert "unable to upgrade" in done.reason


def test_where_nothing_is_to_be_tried_nothing_is_started() -> None:
    row = Attempt("cdi", "impossible", "why")
    assert attempt(Docker(), TWO, row, Expected(()), BENCH) is row  # type: ignore[arg-type]
