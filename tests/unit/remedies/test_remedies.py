from __future__ import annotations

import inspect
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import remedies
from dshpc_setup.errors import Fix
from dshpc_setup.facts import (
    CdiSpec,
    Cpu,
    Engine,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    Platform,
    Toolkit,
)
from dshpc_setup.versions import at_least, numbers

INSTALLED = Toolkit("nvidia", "present", "1.17.8", "/usr/bin/nvidia-container-runtime-hook")

DEBIAN = Platform("linux", os_id="debian", os_version="12")
UBUNTU = Platform("linux", os_id="ubuntu", os_version="24.04", os_like=("debian",))
MINT = Platform("linux", os_id="linuxmint", os_like=("ubuntu", "debian"))
FEDORA = Platform("linux", os_id="fedora", os_version="41")
ROCKY = Platform("linux", os_id="rocky", os_like=("rhel", "centos", "fedora"))
LEAP = Platform("linux", os_id="opensuse-leap", os_like=("suse", "opensuse"))
ARCH = Platform("linux", os_id="arch")
CACHY = Platform("linux", os_id="cachyos", os_like=("arch",))
NIXOS = Platform("linux", os_id="nixos")
ALPINE = Platform("linux", os_id="alpine")
GENTOO = Platform("linux", os_id="gentoo")
UNKNOWN = Platform("linux")
WSL = Platform("wsl2", os_id="ubuntu", os_like=("debian",))
MACOS = Platform("macos")
PLATFORMS = (
    DEBIAN, UBUNTU, MINT, FEDORA, ROCKY, LEAP, ARCH, CACHY, NIXOS, ALPINE, GENTOO, UNKNOWN, WSL, MACOS,
)  # fmt: skip


def machine(platform: Platform = DEBIAN, gpus: Gpus | None = None, **engine: Any) -> HostFacts:
    settings: dict[str, Any] = {
        "kind": "engine",
        "server_version": "28.5.2",
        "rootless": False,
        "cdi_folders": ("/etc/cdi", "/var/run/cdi"),
    }
    return HostFacts(
        platform,
        Cpu(),
        Memory(),
        gpus or Gpus("absent"),
        Engine("present", **{**settings, **engine}),
    )


def commands(steps: tuple[Fix, ...]) -> list[str]:
    return [step.command for step in steps if step.command]


# -- families ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "family"),
    [
        (DEBIAN, "deb"),
        (MINT, "deb"),
        (FEDORA, "rpm"),
        (ROCKY, "rpm"),
        (LEAP, "suse"),
        (ARCH, "arch"),
        (CACHY, "arch"),
        (NIXOS, "nixos"),
        (ALPINE, "alpine"),
        (GENTOO, None),
        (UNKNOWN, None),
        (MACOS, None),
    ],
)
def test_family(platform: Platform, family: str | None) -> None:
    assert remedies.family(platform) == family


@pytest.mark.parametrize(
    ("platform", "installs"),
    [
        (DEBIAN, "sudo apt-get update && sudo apt-get install -y nvidia-container-toolkit"),
        (MINT, "sudo apt-get update && sudo apt-get install -y nvidia-container-toolkit"),
        (ROCKY, "sudo dnf install -y nvidia-container-toolkit"),
        (LEAP, "sudo zypper --gpg-auto-import-keys install -y nvidia-container-toolkit"),
        (CACHY, "sudo pacman -S --needed nvidia-container-toolkit"),
    ],
)
def test_the_toolkit_is_installed_registered_and_found(platform: Platform, installs: str) -> None:
    asked = commands(remedies.install_toolkit(machine(platform)))
    assert asked[-3:] == [
        installs,
        "sudo nvidia-ctk runtime configure --runtime=docker",
        "sudo systemctl restart docker",
    ]
    repository = asked[:-3]
    assert len(repository) == (0 if platform is CACHY else 1)


def test_where_no_command_is_known_the_guide_is_named() -> None:
    for platform in (GENTOO, UNKNOWN):
        first = remedies.install_toolkit(machine(platform))[0]
        assert first.command is None
        assert "https://docs.nvidia.com/" in first.text
    (nix,) = remedies.install_toolkit(machine(NIXOS))
    assert nix.command == "sudo nixos-rebuild switch"
    (driver,) = remedies.install_driver(machine(NIXOS))
    assert (driver.command, "wiki.nixos.org" in driver.text) == (None, True)
    (alpine,) = remedies.install_toolkit(machine(ALPINE))
    assert alpine.command is None
    amd = remedies.install_toolkit(machine(), "amd")
    assert amd[0].command is None
    assert "sudo amd-ctk runtime configure --runtime=docker" in commands(amd)


def test_podman_needs_no_runtime_and_no_restart() -> None:
    facts = machine(kind="podman")
    assert remedies.register_runtime(facts) == ()
    assert remedies.restart_docker(facts) == ()
    asked = commands(remedies.install_toolkit(facts))
    assert asked[-1] == "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        (machine(), "sudo systemctl restart docker"),
        (machine(rootless=True), "systemctl --user restart docker"),
        (machine(kind="snap"), "sudo snap restart docker"),
        (machine(ALPINE), "sudo rc-service docker restart"),
        (machine(WSL), "sudo service docker restart"),
        (machine(WSL, kind="desktop"), None),
        (machine(MACOS), None),
        (machine(kind="remote"), None),
    ],
)
def test_restart(facts: HostFacts, command: str | None) -> None:
    (step,) = remedies.restart_docker(facts)
    assert step.command == command


# -- CDI --------------------------------------------------------------------------------------------


def spec(path: str, kind: str | None = "nvidia.com/gpu") -> CdiSpec:
    return CdiSpec(path, "present" if kind else "error", kind)


GENERATE = "sudo nvidia-ctk cdi generate --output="
REFRESH = "sudo systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (machine(toolkits=(INSTALLED,)), [f"{GENERATE}/etc/cdi/nvidia.yaml"]),
        (machine(toolkits=(replace(INSTALLED, version="1.18.0"),)), [REFRESH]),
        (machine(toolkits=(replace(INSTALLED, version=None),)), [f"{GENERATE}/etc/cdi/nvidia.yaml"]),
        # an old specification is written over: a new one elsewhere would stand beside it
        (
            machine(
                toolkits=(replace(INSTALLED, version="1.19.0"),),
                cdi_specs=(spec("/var/run/cdi/nvidia.yaml"), spec("/etc/cdi/intel.yaml", "intel.com/gpu")),
            ),
            [f"{GENERATE}/var/run/cdi/nvidia.yaml"],
        ),
        (machine(cdi_specs=(spec("/etc/cdi/nvidia.yaml", None),)), [f"{GENERATE}/etc/cdi/nvidia.yaml"]),
        (machine(cdi_specs=(spec("/etc/cdi/my nvidia.yaml"),)), [f"{GENERATE}'/etc/cdi/my nvidia.yaml'"]),
        (machine(WSL, toolkits=(replace(INSTALLED, version="1.18.0"),)), [f"{GENERATE}/etc/cdi/nvidia.yaml"]),
        (machine(NIXOS), ["sudo systemctl restart nvidia-container-toolkit-cdi-generator.service"]),
    ],
)  # fmt: skip
def test_generate_cdi(facts: HostFacts, expected: list[str]) -> None:
    assert commands(remedies.generate_cdi(facts)) == expected


def test_generate_cdi_of_other_vendors() -> None:
    assert commands(remedies.generate_cdi(machine(), "amd")) == ["sudo amd-ctk cdi generate"]
    old = machine(cdi_specs=(spec("/etc/cdi/amd.json", "amd.com/gpu"),))
    assert commands(remedies.generate_cdi(old, "amd")) == [
        "sudo amd-ctk cdi generate --output /etc/cdi/amd.json"
    ]
    assert commands(remedies.generate_cdi(machine(), "intel")) == []


def test_a_docker_that_has_cdi_switched_off_gets_it_switched_on() -> None:
    off = machine(server_version="26.1.5", cdi_folders=(), toolkits=(INSTALLED,))
    on = "sudo nvidia-ctk runtime configure --runtime=docker --cdi.enabled"
    assert commands(remedies.enable_cdi(off)) == [on, "sudo systemctl restart docker"]
    assert on in commands(remedies.generate_cdi(off))
    without_tool = remedies.enable_cdi(machine(server_version="26.1.5", cdi_folders=()))
    assert without_tool[0].command is None
    assert '"features": {"cdi": true} into /etc/docker/daemon.json' in without_tool[0].text
    own = remedies.enable_cdi(replace(off, engine=replace(off.engine, rootless=True)))
    assert (own[0].command or "").startswith("nvidia-ctk ")


def test_cdi_that_is_on_or_cannot_be_is_not_switched_on() -> None:
    assert remedies.enable_cdi(machine(server_version="26.1.5")) == ()
    assert remedies.enable_cdi(machine(kind="podman", cdi_folders=())) == ()
    (old,) = remedies.enable_cdi(machine(server_version="20.10.24", cdi_folders=()))
    assert "25.0 or newer" in old.text
    assert old.command is None


# -- drivers, cards, nodes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "command"),
    [
        (UBUNTU, "sudo ubuntu-drivers install"),
        (
            DEBIAN,
            "sudo apt-get update && sudo apt-get install -y nvidia-driver firmware-misc-nonfree",
        ),
        (MINT, None),
        (FEDORA, "sudo dnf install -y akmod-nvidia xorg-x11-drv-nvidia-cuda"),
        (ROCKY, None),
        (ARCH, "sudo pacman -S --needed nvidia-open nvidia-utils"),
        (GENTOO, None),
    ],
)
def test_install_driver(platform: Platform, command: str | None) -> None:
    (step,) = remedies.install_driver(machine(platform))
    assert step.command == command
    assert command or "https://" in step.text
    (newer,) = remedies.newer_driver(machine(platform))
    assert newer.text.startswith("Install a newer NVIDIA driver")


def test_under_wsl_no_driver_is_installed_inside() -> None:
    facts = machine(WSL)
    for steps in (
        remedies.install_driver,
        remedies.newer_driver,
        remedies.reload_driver,
        remedies.load_uvm,
    ):
        asked = commands(steps(facts))
        assert asked == ["wsl --update", "wsl --shutdown"]


def test_amd_groups_are_asked_for_by_number() -> None:
    card = GpuDevice(0, "amd", device_files=("/dev/dri/renderD128", "/dev/dri/card0"))
    told = remedies.amd_groups(machine(gpus=Gpus("present", (card,))))
    assert told[0].command == "stat -c '%n %g' /dev/kfd /dev/dri/renderD128 /dev/dri/card0"


def test_closed_nodes() -> None:
    nvidia = commands(remedies.node_groups(machine(), ["/dev/nvidia0"]))
    assert nvidia == ["ls -ln /dev/nvidia0", "grep -rs NVreg_DeviceFile /etc/modprobe.d"]
    assert commands(remedies.node_groups(machine(), ["/dev/dri/renderD128"])) == [
        "ls -ln /dev/dri/renderD128"
    ]
    (own,) = remedies.node_groups(machine(rootless=True), ())
    assert "rootless" in own.text


def test_nodes_that_are_closed_to_this_user_himself() -> None:
    nodes, look = ["/dev/kfd", "/dev/dri/renderD128"], "ls -ln /dev/kfd /dev/dri/renderD128"
    known = commands(remedies.own_groups(machine(), nodes, [44, 109, 44, 0, None]))
    assert known == [look, 'sudo usermod -aG 44,109 "$USER"']
    assert commands(remedies.own_groups(machine(), nodes, [0])) == [look], (
        "root's group lets in none"
    )


@pytest.mark.parametrize(
    ("platform", "command"),
    [
        (UBUNTU, "sudo apt-get update && sudo apt-get install -y docker-compose-v2"),
        (DEBIAN, None),  # Debian 12 has version 1 alone
        (
            replace(DEBIAN, os_version="13"),
            "sudo apt-get update && sudo apt-get install -y docker-compose",
        ),
        (FEDORA, "sudo dnf install -y docker-compose"),
        (ROCKY, None),
        (LEAP, "sudo zypper install -y docker-compose"),
        (CACHY, "sudo pacman -S --needed docker-compose"),
        (ALPINE, "sudo apk add docker-cli-compose"),
        (MACOS, "brew install docker-compose"),
        (GENTOO, None),
    ],
)
def test_compose(platform: Platform, command: str | None) -> None:
    (step,) = remedies.compose_v2(machine(platform))
    assert step.command == command
    assert command or "https://" in step.text


# -- all of them ------------------------------------------------------------------------------------

_OTHER = ("family", "toolkit", "Family", "Fixes")
ALL = {name: getattr(remedies, name) for name in remedies.__all__ if name not in _OTHER}
_ARGUMENTS: dict[str, Any] = {"nodes": ("/dev/nvidia0",), "series": 595, "groups": (44, None)}

ENGINES = st.builds(
    lambda kind, version, rootless, tools, paths: {
        "kind": kind,
        "server_version": version,
        "cdi_folders": (),
        "rootless": rootless,
        "toolkits": (INSTALLED,) if tools else (),
        "cdi_specs": tuple(spec(path) for path in paths),
    },
    st.sampled_from((None, "engine", "desktop", "podman", "snap", "remote")),
    st.none() | st.sampled_from(("20.10.24", "26.1.5", "28.5.2", "garbage")),
    st.booleans(),
    st.booleans(),
    st.lists(st.text(min_size=1, max_size=20).map(lambda name: f"/etc/cdi/{name}"), max_size=2),
)


@given(st.sampled_from(PLATFORMS), ENGINES)
def test_every_step_can_be_read_and_pasted(platform: Platform, engine: dict[str, Any]) -> None:
    facts = machine(platform, **engine)
    for name, remedy in ALL.items():
        extra = {
            key: value
            for key, value in _ARGUMENTS.items()
            if key in inspect.signature(remedy).parameters
        }
        for step in remedy(facts, **extra):
            assert isinstance(step, Fix), name
            assert step.text[0].isupper(), name
            assert not step.text.endswith("."), name
            if step.command is not None:
                assert shlex.split(step.command), name


@given(st.sampled_from(PLATFORMS))
def test_what_needs_root_says_so(platform: Platform) -> None:
    tools = re.compile(
        r"(?:^|&& |; )(?:apt-get|dnf|zypper|pacman|apk|snap|modprobe|rc-service|reboot)\b"
    )
    for remedy in ALL.values():
        extra = {
            key: value
            for key, value in _ARGUMENTS.items()
            if key in inspect.signature(remedy).parameters
        }
        for command in commands(remedy(machine(platform, toolkits=(INSTALLED,)), **extra)):
            assert not tools.search(command), command


# -- versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "least", "is_so"),
    [
        ("28.2.1", "28.2", True),
        ("28.2", "28.2.0", True),
        ("28.1.9", "28.2", False),
        ("v2.30.1-desktop.1", "2.30", True),
        ("9.0", "10.0", False),
        ("26.1.5+dfsg1", "25", True),
        (None, "1", False),
        ("unknown", "1", False),
        ("", "0", False),
    ],
)
def test_at_least(version: str | None, least: str, is_so: bool) -> None:
    assert at_least(version, least) is is_so


@given(st.text())
def test_any_version_is_taken(text: str) -> None:
    found = numbers(text)
    assert found is None or at_least(text, ".".join(map(str, found)))


def test_a_changed_hook_needs_a_container_of_its_own() -> None:
    again = [fix.command for fix in remedies.cgroups_on(machine())]
    assert again == [
        "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
        "dshpc down && dshpc up",
    ]
