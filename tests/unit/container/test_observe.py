"""What the container says of itself: read from the answers of Slurm, s6 and the system."""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.container import key_set, observe, observe_daemons
from dshpc_setup.facts import Cpu, Engine, GpuDevice, Gpus, HostFacts
from dshpc_setup.machine import CommandResult
from dshpc_setup.node import main
from dshpc_setup.observed.model import Inside, KeyFile
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine, facts

UP = "Slurmctld(primary) at lab is UP\n"
DOWN = (
    "Slurmctld(primary) at lab is DOWN\n"
    "*****************************************\n"
    "** RESTORE SLURMCTLD DAEMON TO SERVICE **\n"
    "*****************************************\n"
)
NODE_LINE = "NodeName=lab Arch=x86_64 Version=24.11.4 State=IDLE "
SLURM = f"{UP}\x1eSLURM_VERSION           = 24.11.5\n\x1e{NODE_LINE}\n\x1e17 train me\n18 x\n"
DAEMONS = (
    "slurmctld\x1ftrue true 20 70\n\x1f\x1fslurm-wlm 24.11.5\n\x1e"
    "slurmd\x1ftrue true 444 1\n\x1f"
    "@400000006b026687066d5fbb signal SIGKILL\n@400000006b02668913571a09 exitcode 0\n"
    "\x1fslurm-wlm 24.11.5\n\x1e"
)
SECRET = b"never to be seen by anybody, and 16 bytes at least"
SLURM_CONF = """ClusterName=lab
AccountingStoragePass=hunter2hunter2
NodeName=lab CPUs=8 RealMemory=32000 State=UNKNOWN
"""
GRES_CONF = "NodeName=lab Name=gpu File=/dev/nvidia[0-2]\nNodeName=other Name=gpu File=/dev/dri/x\n"


@dataclass
class Container(FakeMachine):
    devices: set[str] = field(default_factory=set)

    def is_device(self, path: str) -> bool:
        return path in self.devices


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    for folder in ("etc/slurm", "run/dshpc", "var/lib/dshpc/key", "var/lib/dshpc/state", "dev"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "run/dshpc/node").write_text("lab\n")
    (tmp_path / "etc/slurm/slurm.conf").write_text(SLURM_CONF)
    (tmp_path / "etc/slurm/gres.conf").write_text(GRES_CONF)
    Path(key(tmp_path)).write_bytes(key_set.to_bytes(key_set.fresh(SECRET, "one")))
    Path(key(tmp_path)).chmod(0o600)
    return Paths(str(tmp_path))


def key(root: Path) -> str:
    return Paths(str(root)).key


def machine(slurm: Answer | None = None, daemons: Answer | None = None) -> Container:
    return Container(
        commands={
            "sh -c [": slurm or Answer(SLURM),
            "sh -c more=": daemons or Answer(DAEMONS),
            "getent hosts": Answer("127.0.0.1 lab"),
        },
        files={"/proc/7/stat": "7 (a) b) Z 1 7", "/proc/8/stat": "8 (sh) S 1 8", "/proc/x": "Z"},
    )


def look(
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    asked: Container | None = None,
    found: HostFacts | None = None,
) -> Inside:
    seen = found or replace(facts(Engine("unsupported")), cpu=Cpu(8, usable=4))
    monkeypatch.setattr(probes, "gather", lambda *_, **__: seen)
    env = {"DSHPC_SITE_TOKEN": "a-secret-of-the-environment"}
    return observe.observe(asked or machine(), paths, env)


def test_a_healthy_cluster(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = look(paths, monkeypatch)
    assert (inside.controller, inside.controller_says) == ("up", None)
    ctld, slurmd = inside.daemons
    assert (ctld.up, ctld.pid, ctld.seconds, ctld.exits) == (True, 20, 70, 0)
    assert (ctld.version, ctld.running_version) == ("24.11.5", "24.11.5")
    assert (slurmd.exits, slurmd.running_version) == (1, "24.11.4")
    assert inside.node_lines == (NODE_LINE,)
    assert inside.out_of_memory == ("17 (train me)", "18 (x)")
    assert (inside.node_cpus, inside.node_real_memory_mib) == (8, 32000)
    assert (inside.cpus, inside.memory_limit_mib, inside.gpus_state) == (4, 7000, "absent")
    assert inside.zombies == 1
    assert inside.host_name_resolves is True
    assert inside.state_volume is not None
    assert inside.state_volume.size_mib >= inside.state_volume.free_mib > 0


def test_of_a_broken_start_all_but_slurm_is_told(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No configuration is in force, nothing is supervised yet."""
    for name in ("slurm.conf", "gres.conf"):
        os.unlink(f"{paths.etc_slurm}/{name}")
    daemons = "slurmctld\x1f\x1f\x1fslurm-wlm 24.11.5\n\x1eslurmd\x1f\x1f\x1f\x1e"
    asked = machine(Answer("no slurm.conf is in force\n"), Answer(daemons))
    inside = look(paths, monkeypatch, asked)
    assert (inside.controller, inside.controller_says) == ("down", "no slurm.conf is in force")
    ctld, slurmd = inside.daemons
    assert not ctld.up
    assert not ctld.wanted
    assert (ctld.version, slurmd.version) == ("24.11.5", None)
    assert (inside.slurm_conf, inside.gres_conf, inside.device_files) == (None, None, {})
    assert inside.key is not None
    assert inside.key.state == "present"


def test_no_secret_is_printed(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(observe.to_json(look(paths, monkeypatch)))
    (kept, *_) = json.loads(Path(paths.key).read_text())["keys"]
    for secret in (SECRET.decode(), kept["k"], "hunter2", "a-secret-of-the-environment"):
        assert secret not in text
    assert "AccountingStoragePass=(left out)" in text
    assert "RealMemory=32000" in text


def test_device_files_of_this_node_are_opened(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(paths.at("/dev/nvidia0")).write_text("")
    Path(paths.at("/dev/nvidia1")).write_text("")  # in the way of the device
    asked = machine()
    asked.devices = {"/dev/nvidia0", "/dev/nvidia2"}  # the last one cannot be opened
    inside = look(paths, monkeypatch, asked)
    assert inside.device_files == {
        "/dev/nvidia0": True,
        "/dev/nvidia1": False,
        "/dev/nvidia2": False,
    }


def test_gpus_by_the_names_that_a_start_would_give_them(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = GpuDevice(0, "nvidia", "NVIDIA T4", slurm_type="t4", device_files=("/dev/nvidia0",))
    lost = replace(good, index=1, device_files=("/dev/nvidia1",), problems=("DSH-NV-013",))
    hidden = replace(good, index=2, device_files=("/dev/nvidia9",))
    found = replace(facts(Engine("absent")), gpus=Gpus("present", (good, lost, hidden)))
    asked = machine()
    asked.devices = {"/dev/nvidia0", "/dev/nvidia1"}
    inside = look(paths, monkeypatch, asked, found)
    assert inside.gpus == ("t4",)
    assert inside.gpus_state == "present"
    assert inside.gpu_problems == {"GPU 1 (NVIDIA T4)": ("DSH-NV-013",)}


def test_hardware_that_does_not_answer_is_not_taken_for_none(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> HostFacts:
        raise RuntimeError("the driver is gone")

    monkeypatch.setattr(probes, "gather", crash)
    inside = observe.observe(machine(), paths, {})
    assert (inside.gpus, inside.gpus_state, inside.cpus) == ((), "timeout", None)
    assert inside.controller == "up"


def result(stdout: str, state: str = "present") -> CommandResult:
    return CommandResult(("sh",), state, 0, stdout, "", 4000.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "controller", "says"),
    [
        (result(SLURM), "up", None),
        (result(DOWN), "down", "Slurmctld(primary) at lab is DOWN"),
        (result("", "timeout"), "silent", "scontrol ping did not answer within 4 s"),
        (result("scontrol: error: no\n"), "silent", "scontrol: error: no"),
        (result("", "absent"), "silent", "scontrol: absent"),
    ],
)
def test_how_the_controller_is(asked: CommandResult, controller: str, says: str | None) -> None:
    found = observe_daemons.parse_slurm(asked)
    assert (found["controller"], found.get("controller_says")) == (controller, says)


def test_a_controller_that_answers_and_then_hangs_is_up() -> None:
    found = observe_daemons.parse_slurm(result(f"{UP}\x1e", "timeout"))
    assert (found["controller"], found["running_version"], found["node_lines"]) == ("up", None, ())


def test_a_batch_job_without_a_slurmstepd_is_told_once_it_had_a_minute_to_begin() -> None:
    queue = (
        "17 |1 |0:59 |\n18 |1 |1:00 |\n19 |1 |1-02:03:04 |\n20 |0 |5:00 |\n"
        "21 |1 |2:00 |\nx |1 |2:00 |\n22|1|2:00\n"
    )
    assert observe_daemons.parse_running(queue, ["21.batch"]) == ("18", "19")
    steps = (
        "18 |18.batch |2:00 |\n18 |18.0 |1:00 |\n18 |18.1 |2:00 |\n18 |18.2 |0:59 |\n"
        "22 |5_3.0 |2:00 |\n23 |23.extern |2:00 |\n24|24.0|2:00\nx|x.0|2:00|\n"
    )
    asked = result("\x1e".join([UP, "", "", "", "21.batch\n18.batch\n18.0\n", queue, steps]))
    found = observe_daemons.parse_slurm(asked)
    assert found["without_process"] == ("19",)
    assert found["steps_without_process"] == ("18.1", "5_3.0")


@given(st.text(max_size=200), st.sampled_from(["present", "timeout", "absent", "error"]))
def test_any_answer_of_slurm_is_read(text: str, state: str) -> None:
    for stdout in (text, UP + text):
        found = observe_daemons.parse_slurm(result(stdout, state))
        assert found["controller"] in ("up", "down", "silent")
        assert Inside(**{key: found[key] for key in found if key != "running_version"})


@pytest.mark.parametrize(
    ("deaths", "exits"),
    [
        ("", 0),
        ("@4 exitcode 0\n", 0),  # in good order
        ("@4 exitcode 10\n", 1),  # near-miss of the one above
        ("@4 signal SIGSEGV\n@5 exitcode 0\n@6 exitcode 1\n", 2),
    ],
)
def test_ends_are_counted_but_for_those_in_good_order(deaths: str, exits: int) -> None:
    assert observe_daemons.parse_daemon("slurmd", "true true 1 1", deaths, "").exits == exits


@pytest.mark.parametrize(
    ("status", "up", "wanted", "pid", "seconds"),
    [
        ("true true 20 70\n", True, True, 20, 70),
        ("false true -1 3\n", False, True, None, 3),  # it ended, and is to come back
        ("false false -1 10\n", False, False, None, 10),
        ("", False, False, None, None),  # not supervised
        ("s6-svstat: fatal: no", False, False, None, None),
    ],
)
def test_a_daemon_under_its_supervisor(
    status: str, up: bool, wanted: bool, pid: int | None, seconds: int | None
) -> None:
    found = observe_daemons.parse_daemon("slurmd", status, "", "slurm 25.05.0-rc1")
    assert (found.up, found.wanted, found.pid, found.seconds) == (up, wanted, pid, seconds)
    assert found.version == "25.05.0-rc1"


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_any_answer_of_a_supervisor_is_read(status: str, deaths: str, version: str) -> None:
    assert observe_daemons.parse_daemon("slurmd", status, deaths, version).exits >= 0


def test_a_good_key(paths: Paths) -> None:
    found = observe.key_file(paths)
    assert (found.state, found.mode, found.detail) == ("present", 0o600, None)
    assert found.size == os.path.getsize(paths.key)


def test_a_key_of_slurm_s_is_that_whatever_else_its_user_is_called(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a container has one id alone, root and slurm are one."""
    entry = pwd.struct_passwd(("slurm", "x", os.geteuid(), 0, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda _: entry)
    assert observe.key_file(paths).owner == "slurm"


def test_a_key_that_others_can_read(paths: Paths) -> None:
    os.chmod(paths.key, 0o644)
    assert observe.key_file(paths).detail == "every user can read it"


@pytest.mark.parametrize(
    "content",
    [b'{"keys": [{"kid": "a", "k": "c2hvcnQ"}]}', b'{"keys": 3}     ', b'{"keys": [}    \xff\xff'],
)
def test_a_damaged_key_is_named_without_a_word_of_it(paths: Paths, content: bytes) -> None:
    Path(paths.key).write_bytes(content)
    assert observe.key_file(paths).detail == "it is damaged"


def test_no_key(paths: Paths) -> None:
    os.unlink(paths.key)
    assert observe.key_file(paths) == KeyFile("absent")


def test_the_command_prints_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(observe, "observe", lambda *_: Inside(wheel_version="1"))
    assert main.main(["observe"]) == 0
    assert json.loads(capsys.readouterr().out)["wheel_version"] == "1"
    assert main.main(["observe", "more"]) == 64
    assert "'more' was not expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "days", "package"),
    [
        ("2026-10-17\n24.11.5-4\n", 40, "24.11.5-4"),
        ("2026-11-26\n", 0, None),
        ("soon\n24.11.5-4\n", None, None),
        ("", None, None),
    ],
)
def test_what_the_build_wrote_of_its_packages(
    text: str, days: int | None, package: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "_today", lambda: date(2026, 11, 26))
    found = observe.packages(FakeMachine(files={"/etc/dshpc/packages": text} if text else {}))
    assert (found.get("packages_days"), found.get("slurm_package")) == (days, package)


def test_programs_that_cannot_be_run_are_named(paths: Paths) -> None:
    os.makedirs(paths.etc_slurm, exist_ok=True)
    with open(f"{paths.etc_slurm}/slurm.conf", "w", encoding="utf-8") as file:
        file.write("Epilog=/usr/bin/true\nTaskProlog=/no/such\n")
    (found,) = observe.unusable_programs(paths)
    assert (found.key, found.path, found.fault) == ("TaskProlog", "/no/such", "missing")
