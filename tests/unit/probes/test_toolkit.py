"""The container toolkits: what is installed, what its settings say, and what is not in force yet."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module  # noqa: TID251
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.facts import Engine, Toolkit
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.probes import engine_files, engine_join, toolkit
from dshpc_setup.probes.engine_files import Daemon
from tests.unit.probes.made_machine import MadeMachine, printed

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

MACHINES = Path(__file__).parents[2] / "machines"
HOOK = "/usr/bin/nvidia-container-runtime-hook"
RUNTIME = "/usr/bin/nvidia-container-runtime"
CONFIG = "/etc/nvidia-container-runtime/config.toml"
SETTINGS = "/etc/docker/daemon.json"


class Made(MadeMachine):
    """A machine whose programs have a place, and whose files have a time."""

    def __init__(
        self,
        files: Mapping[str, str | None],
        *,
        times: Mapping[str, float] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(files, **more)
        self.times = dict(times or {})

    def changed(self, path: str) -> float | None:
        return self.times.get(path)


def engine(name: str) -> Engine:
    return probes.gather(RecordedMachine(MACHINES / name), only=["docker"]).engine


def only(name: str) -> Toolkit:
    (found,) = engine(name).toolkits
    return found


# What is installed


def test_nothing_of_any_vendor_is_no_toolkit_and_no_process() -> None:
    machine = Made({})
    found = toolkit.probe(machine, 1.0)
    assert found.fact.toolkits == ()
    assert machine.asked == []
    assert [(item.probe, item.state) for item in found.evidence] == [("toolkit", "absent")]


@pytest.mark.parametrize(
    ("sign", "vendor"),
    [
        ("/sys/module/nvidia/version", "nvidia"),
        ("/usr/lib/wsl/lib/libcuda.so.1", "nvidia"),
        ("/sys/class/kfd/kfd/topology/nodes/0/properties", "amd"),
    ],
)
def test_a_driver_without_its_toolkit_is_an_absence(sign: str, vendor: str) -> None:
    (found,) = toolkit.probe(Made({sign: "1"}), 1.0).fact.toolkits
    assert (found.vendor, found.state, found.hook) == (vendor, "absent", None)


def test_made_up_gpus_need_no_toolkit() -> None:
    class Simulated(Made):
        @property
        def simulated(self) -> str | None:
            return "h100:2"

    assert toolkit.probe(Simulated({"/sys/module/nvidia/version": "1"}), 1.0).fact.toolkits == ()


def test_the_toolkit_of_a_workstation() -> None:
    found = only("workstation-rtx4090")
    assert found == Toolkit(
        "nvidia",
        "present",
        "1.17.8",
        HOOK,
        RUNTIME,
        "/usr/bin/nvidia-ctk",
        "/usr/bin/nvidia-cdi-hook",
        mode="auto",
    )


def test_amds_has_a_runtime_and_no_hook() -> None:
    found = only("mi210x4-toolkit-cdi")
    assert (found.vendor, found.version, found.hook) == ("amd", "1.2.0", None)
    assert found.runtime == "/usr/bin/amd-container-runtime"
    assert engine("mi210x4-toolkit-cdi").registered == ("amd",)


def test_intel_has_none() -> None:
    assert engine("max1550-cdi").toolkits == ()


@pytest.mark.parametrize(
    ("folder", "config"),
    [
        ("/usr/local/bin", CONFIG),
        ("/usr/local/nvidia/toolkit", f"/usr/local/nvidia/toolkit/.config{CONFIG[4:]}"),
        ("/snap/docker/current/usr/bin", f"/var/snap/docker/current{CONFIG}"),
    ],
)
def test_settings_belong_to_the_place_of_the_programs(folder: str, config: str) -> None:
    others = "[nvidia-container-runtime]\nmode = 'legacy'\n"
    files = {CONFIG: others, config: "[nvidia-container-runtime]\nmode = 'cdi'\n"}
    machine = Made({f"{folder}/nvidia-container-runtime": "", **files})
    (found,) = toolkit.probe(machine, 1.0).fact.toolkits
    assert (found.runtime, found.mode) == (f"{folder}/nvidia-container-runtime", "cdi")


def test_settings_that_may_not_be_read_are_said_to_be_so() -> None:
    found = toolkit.probe(Made({HOOK: "", CONFIG: None}), 1.0)
    (it,) = found.fact.toolkits
    assert (it.state, it.no_cgroups, it.mode) == ("present", None, None)
    assert it.detail == f"{CONFIG} cannot be read (denied)"
    assert ("denied", CONFIG) in [(item.state, item.source) for item in found.evidence]


@pytest.mark.parametrize(
    ("result", "state", "version"),
    [
        (printed("NVIDIA Container Toolkit CLI version 1.16.1\ncommit: a4708.1\n"), None, "1.16.1"),
        (printed("", 2, "unknown flag"), "error", None),
        (printed("Version: dev\nBuild Date: 2025-11-04\n"), "error", None),
        (CommandResult(("x",), "timeout", None, "", "", 3000.0), "timeout", None),
    ],
)
def test_a_version_is_what_the_program_says(
    result: CommandResult, state: str | None, version: str | None
) -> None:
    machine = Made({"/usr/bin/nvidia-ctk": ""}, commands={"nvidia-ctk": result})
    found = toolkit.probe(machine, 1.0)
    (it,) = found.fact.toolkits
    assert (it.state, it.version) == ("present", version)
    told = [item.state for item in found.evidence if item.source == "/usr/bin/nvidia-ctk --version"]
    assert told == ([state] if state else [])
    assert machine.asked == [("/usr/bin/nvidia-ctk", "--version")]


# config.toml


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", toolkit.Settings()),
        ("[nvidia-container-cli]\nno-cgroups = true\n", toolkit.Settings(no_cgroups=True)),
        ("[nvidia-container-cli]\n no-cgroups=false # x\n", toolkit.Settings(no_cgroups=False)),
        ("[nvidia-container-cli]\n#no-cgroups = true\n", toolkit.Settings()),
        ("no-cgroups = true\n[nvidia-container-cli]\n", toolkit.Settings()),
        ("[nvidia-container-runtime]\nno-cgroups = true\n", toolkit.Settings()),
        ("[nvidia-container-cli]\nno-cgroups = 'true'\n", toolkit.Settings()),
        ("[nvidia-container-cli]\nno-cgroups = truely\n", toolkit.Settings()),
        ("nvidia-container-cli.no-cgroups = true", toolkit.Settings(no_cgroups=True)),
        ('[ "nvidia-container-cli" ] # x\n"no-cgroups" = true', toolkit.Settings(no_cgroups=True)),
        ("[nvidia-container-cli]\nno-cgroups = true\n#no-cgroups = false\n",
         toolkit.Settings(no_cgroups=True)),
        ("[nvidia-container-cli]\nenvironment = [\n'no-cgroups = true',\n]\n", toolkit.Settings()),
        ('[nvidia-container-runtime]\nmode = "cdi"\n', toolkit.Settings(mode="cdi")),
        ("[nvidia-container-runtime.modes.cdi]\nmode = 'cdi'\n", toolkit.Settings()),
        ("[nvidia-container-runtime]\nmode = 'no such'\n", toolkit.Settings()),
        ('supported-driver-capabilities = "utility, compute"\n',
         toolkit.Settings(capabilities=("compute", "utility"))),
        ('supported-driver-capabilities = "all"\n', toolkit.Settings()),
        ('supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"\n',
         toolkit.Settings()),
        ('supported-driver-capabilities = "compat32,display,graphics,ngx,utility,video"\n',
         toolkit.Settings(
             capabilities=("compat32", "display", "graphics", "ngx", "utility", "video"))),
    ],
)  # fmt: skip
def test_what_config_toml_says(text: str, found: toolkit.Settings) -> None:
    assert toolkit.parse_config(text) == found


@given(st.text())
def test_any_config_is_read(text: str) -> None:
    assert isinstance(toolkit.parse_config(text), toolkit.Settings)


VALUES = st.one_of(
    st.booleans().map(lambda value: str(value).lower()),
    st.sampled_from(['"cdi"', "'legacy'", '"auto" # "csv"', '"compute,utility"', '"a#b"', "1", "[]",
                     '["runc", "crun"]', '[\n"a = b",\n]', '"with \\" quote"']),
)  # fmt: skip
KEYS = st.sampled_from(
    ["no-cgroups", "mode", "load-kmods", "supported-driver-capabilities", "root"]
)
SECTIONS = st.sampled_from(["", "nvidia-container-cli", "nvidia-container-runtime",
                            "nvidia-container-runtime.modes.cdi", "nvidia-ctk"])  # fmt: skip


@given(st.dictionaries(SECTIONS, st.dictionaries(KEYS, VALUES)), st.booleans())
def test_it_reads_what_a_whole_toml_parser_reads(
    sections: dict[str, dict[str, str]], commented: bool
) -> None:
    lines = []
    for section in sorted(sections):
        lines += [f"[{section}]"] if section else []
        for key, value in sections[section].items():
            lines += [f"#{key} = true"] if commented else []
            lines.append(f"  {key} = {value}")
    text = "\n".join(lines)
    whole: dict[str, Any] = tomllib.loads(text)
    found = toolkit.parse_config(text)
    flag = whole.get("nvidia-container-cli", {}).get("no-cgroups")
    assert found.no_cgroups == (flag if isinstance(flag, bool) else None)
    mode = whole.get("nvidia-container-runtime", {}).get("mode")
    assert found.mode == (mode if mode in ("cdi", "legacy", "auto") else None)
    names = whole.get("supported-driver-capabilities")
    words = names.split(",") if isinstance(names, str) else []
    assert list(found.capabilities) == sorted(filter(str.isalnum, words))


# daemon.json


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"runtimes": {"nvidia": {"path": "x"}, "kata": {}}}', ("kata", "nvidia")),
        ('{"default-runtime": "nvidia"}', ()),
        ('{"runtimes": ["nvidia"]}', ()),
        ("{}", ()),
        ("[]", None),
        ("", None),
        ('{"runtimes": {"nvidia": {}},}', None),
        ("[" * 100_000, None),
    ],
)
def test_the_runtimes_of_daemon_json(text: str, names: tuple[str, ...] | None) -> None:
    assert (engine_files.parse_settings(text) or (None,))[0] == names


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"log-driver": "json-file", "log-opts": {"max-size": "10m", "max-file": "3"}}', "10m"),
        ('{"log-opts": {"max-file": "3"}}', None),
        ('{"log-opts": {"max-size": 10}}', None),
        ('{"log-opts": ["max-size"]}', None),
        ("{}", None),
    ],
)
def test_how_large_daemon_json_lets_logs_grow(text: str, size: str | None) -> None:
    assert engine_files.parse_settings(text) == ((), size)


@given(st.text())
def test_any_daemon_json_is_read_or_none(text: str) -> None:
    assert isinstance(engine_files.parse_settings(text), tuple | None)


@pytest.mark.parametrize(("text", "state"), [(None, "denied"), ("{", "error"), ("{}", "present")])
def test_a_daemon_json_leaves_its_evidence(text: str | None, state: str) -> None:
    found = toolkit.probe(Made({SETTINGS: text}), 1.0)
    told = [item for item in found.evidence if item.probe == "daemon.json"]
    assert [(item.source, item.state) for item in told] == [(SETTINGS, state)]


# The engine's start

STAT = "1432 (dockerd) S 1 1432 1432 0 -1 4194560 9 9 5 1 2 1 4 9 20 0 24 0 150037 1 2 3"


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        (STAT, 150037),
        (STAT.replace("dockerd", "dockerd ) x"), 150037),
        (STAT.replace("dockerd", "bash"), None),
        (STAT.replace("150037", "soon"), None),
        (STAT[:40], None),
        ("", None),
    ],
)
def test_when_a_process_was_started(text: str, ticks: int | None) -> None:
    assert engine_files.parse_start(text) == ticks


@given(st.text())
def test_any_stat_is_read(text: str) -> None:
    assert isinstance(engine_files.parse_start(text), int | None)
    assert isinstance(engine_files.parse_boot(text), float | None)


def test_when_the_machine_was_started() -> None:
    assert engine_files.parse_boot("cpu 1 2\nbtime 1748736000\nprocesses 9\n") == 1748736000.0
    assert engine_files.parse_boot("xbtime 1748736000\n") is None


FILES = {"/var/run/docker.pid": "1432\n", "/proc/1432/stat": STAT, "/proc/stat": "btime 1000\n"}
STARTED = 1000 + 1500.37


def newer_by(seconds: float, path: str = HOOK, **fields: Any) -> tuple[str, ...]:
    machine = Made({HOOK: "", SETTINGS: "{}", **FILES}, times={path: STARTED + seconds})
    installed = toolkit.probe(machine, 1.0).fact
    here = {"state": "present", "kind": "engine", "host": "unix:///var/run/docker.sock", **fields}
    chosen = engine_files.chosen(Engine(**here), installed.daemons)
    return engine_files.newer(chosen, installed.toolkits, installed.changed)


@pytest.mark.parametrize(
    ("seconds", "newer"), [(3600, True), (2, True), (0.9, False), (0, False), (-3600, False)]
)
def test_what_is_newer_than_the_engine(seconds: float, newer: bool) -> None:
    """Up to a second is what the kernel's own start is not known by."""
    assert newer_by(seconds) == ((HOOK,) if newer else ())
    assert newer_by(seconds, SETTINGS) == ((SETTINGS,) if newer else ())


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "desktop"},
        {"kind": "remote"},
        {"kind": "podman"},
        {"state": "denied", "kind": None},
        {"host": "unix:///somewhere/docker.sock"},
        {"host": "tcp://127.0.0.1:2375"},
    ],
)
def test_of_an_engine_that_does_not_run_here_nothing_is_newer(fields: dict[str, Any]) -> None:
    assert newer_by(3600, **fields) == ()


def test_a_pid_file_that_names_another_process_tells_nothing() -> None:
    files = {**FILES, "/proc/1432/stat": STAT.replace("dockerd", "sshd")}
    found = toolkit.probe(Made(files), 1.0).fact.daemons["engine"]
    assert found == Daemon(SETTINGS)


def test_an_engine_of_another_socket_has_its_files_beside_it() -> None:
    class Chosen(Made):
        @property
        def env(self) -> Mapping[str, str]:
            return {"DOCKER_HOST": "unix:///srv/d/docker.sock"}

    files = {f"/srv/d/{name.rpartition('/')[2]}" if "pid" in name else name: text
             for name, text in FILES.items()}  # fmt: skip
    daemons = toolkit.probe(Chosen(files), 1.0).fact.daemons
    asked = Engine("present", kind="engine", host="unix:///srv/d/docker.sock")
    found = engine_files.chosen(asked, daemons)
    assert found
    assert (found.settings, found.started) == ("/srv/d/daemon.json", STARTED)


# An engine outside of the container that we are in

IN_DOCKER = {"/.dockerenv": "", "/proc/sys/kernel/hostname": "0f3c\n",
             "/sys/module/nvidia/version": "550.163.01\n"}  # fmt: skip
SOCKET = "22 1 0:23 /docker.sock /run/docker.sock rw - tmpfs tmpfs rw\n"


def joined(files: Mapping[str, str], **fields: Any) -> tuple[Engine, list[str]]:
    installed = toolkit.probe(Made(dict(files)), 1.0).fact
    here = {"state": "present", "kind": "engine", "host": "unix:///var/run/docker.sock", **fields}
    found, conclusions = engine_join.join(Engine(**here), installed, ())
    return found, [f"{item.about}: {item.says}" for item in conclusions]


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({**IN_DOCKER, "/proc/self/mountinfo": SOCKET}, "0f3c"),  # on the host's network
        (IN_DOCKER, "workstation"),
    ],
)
def test_of_an_engine_outside_of_our_container_nothing_is_said(
    files: Mapping[str, str], name: str
) -> None:
    found, said = joined(files, name=name)
    assert (found.toolkits, found.registered) == ((), ())
    (line,) = said
    assert line.startswith("docker.toolkit: not known: the engine and its toolkits are outside")


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (IN_DOCKER, "0f3c"),  # an engine in the container, which tells nothing of its start
        ({**IN_DOCKER, **FILES}, "workstation"),  # its pid file is here
        ({**IN_DOCKER, "/run/systemd/container": "lxc"}, "0f3c"),
        ({**IN_DOCKER, "/proc/self/mountinfo": SOCKET.replace("docker.sock", "x")}, "0f3c"),
        ({path: text for path, text in IN_DOCKER.items() if path != "/.dockerenv"}, "workstation"),
    ],
)
def test_an_engine_beside_us_is_not_outside(files: Mapping[str, str], name: str) -> None:
    found, said = joined(files, name=name)
    assert [item.state for item in found.toolkits] == ["absent"]
    assert said == ["docker.toolkit nvidia: the NVIDIA Container Toolkit is not installed"]


@pytest.mark.parametrize(
    ("kind", "registered", "says"),
    [
        ("engine", ("nvidia",), "is not installed"),
        ("desktop", (), "is not installed here, where no container runs"),
        ("remote", (), "is not installed here, where no container runs"),
        ("podman", (), "is not installed"),
    ],
)
def test_daemon_json_is_of_an_engine_that_reads_it(
    kind: str, registered: tuple[str, ...], says: str
) -> None:
    files = {SETTINGS: '{"runtimes": {"nvidia": {}}}', "/sys/module/nvidia/version": "1"}
    found, said = joined(files, kind=kind)
    assert found.registered == registered
    assert said[0] == f"docker.toolkit nvidia: the NVIDIA Container Toolkit {says}"


def test_amd_gpus_are_handed_over_without_a_toolkit() -> None:
    (line,) = joined({"/dev/kfd": ""})[1]
    assert line.endswith("not needed: containers can be given the device nodes")


# Whole machines: each with its near miss


def test_an_update_of_the_toolkit_wants_no_restart() -> None:
    """Its files are newer as well; but the engine knows its runtime, so that it was there before."""
    late, updated = engine("rtx4090-toolkit-not-restarted"), engine("rtx4090-toolkit-updated")
    assert HOOK in late.newer
    assert HOOK in updated.newer
    assert (engine_join.late_hooks(late), engine_join.late_hooks(updated)) == ((HOOK,), ())
    assert engine_join.late_hooks(engine("workstation-rtx4090")) == ()


def test_the_hosts_engine_seen_from_a_container() -> None:
    found = engine("container-hosts-docker")
    assert (found.state, found.kind, found.toolkits) == ("present", "engine", ())


def test_installed_and_not_restarted_against_registered() -> None:
    late, good = engine("rtx4090-toolkit-not-restarted"), engine("workstation-rtx4090")
    assert HOOK in late.newer
    assert (good.newer, good.registered) == ((), ("nvidia",))
    assert engine("rtx4090-toolkit-missing").newer == ()


def test_registered_and_not_in_force_against_not_registered() -> None:
    late, never = engine("rtx4090-runtime-not-in-force"), engine("rtx4090-runtime-not-registered")
    assert (late.registered, late.newer) == (("nvidia",), (SETTINGS,))
    assert "nvidia" not in late.runtimes
    assert (never.registered, never.newer) == ((), ())


@pytest.mark.parametrize(
    ("name", "rootless", "no_cgroups"),
    [
        ("rtx4090-rootless", True, None),
        ("rtx4090-rootless-no-cgroups", True, True),
        ("rtx4090-no-cgroups", False, True),
        ("workstation-rtx4090", False, None),
    ],
)
def test_no_cgroups_and_whose_engine_it_is(
    name: str, rootless: bool, no_cgroups: bool | None
) -> None:
    found = engine(name)
    assert (found.rootless, found.toolkits[0].no_cgroups) == (rootless, no_cgroups)
    assert found.registered == ("nvidia",), "of the user's own daemon.json, if it is rootless"


def test_only_what_is_asked_for_is_looked_at() -> None:
    machine = RecordedMachine(MACHINES / "workstation-rtx4090")
    assert probes.gather(machine, only=["cpu"]).engine.toolkits == ()
    assert probes.gather(machine, engine=False).engine.toolkits == ()
    assert probes.gather(machine, only=["docker"]).engine == probes.gather(machine).engine
