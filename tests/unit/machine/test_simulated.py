"""Made-up GPUs: the probes see them, the host shows through, and all is labelled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Gpus
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.machine.profiles import MIG_MODELS, MODELS
from dshpc_setup.machine.simulated import SimulatedMachine, device_files, parse_profile
from dshpc_setup.probes.naming import slurm_type
from tests.unit.machine.in_place import EMPTY, InPlace


class Container(InPlace):
    """A container that was given these device nodes."""

    def __init__(self, *nodes: str) -> None:
        super().__init__("/nonexistent")
        self.nodes = nodes

    def exists(self, path: str) -> bool:
        return path == "/.dockerenv" or path in self.nodes

    def is_device(self, path: str) -> bool:
        return path in self.nodes

    def group_of(self, path: str) -> int | None:
        return 0 if path in self.nodes else None

    def listdir(self, path: str) -> tuple[str, ...]:
        inside = f"{path}/"
        return tuple(
            sorted({n[len(inside) :].split("/")[0] for n in self.nodes if n.startswith(inside)})
        )


def look(profile: str, *, base: LocalMachine = EMPTY, host: bool = True) -> Gpus:
    machine = SimulatedMachine(base, profile, devices_exist=host)
    return probes.gather(machine, engine=False).gpus


@pytest.mark.parametrize("key", MODELS)
def test_every_model_is_seen_as_what_it_is(key: str) -> None:
    found = look(f"{key}:3")
    assert (found.state, found.simulated, len(found.devices)) == ("present", True, 3)
    assert {device.slurm_type for device in found.devices} == {slurm_type(MODELS[key].name)}
    assert {device.memory_mib for device in found.devices} == {MODELS[key].memory_mib}
    assert len({device.uuid for device in found.devices}) == 3
    assert all(device.uuid and "facade00" in device.uuid for device in found.devices)
    files = [file for device in found.devices for file in device.device_files]
    assert len(set(files)) == 3
    assert set(files) <= set(device_files(parse_profile(f"{key}:3")))


def test_the_same_again_is_the_same() -> None:
    assert look("h100:2") == look("h100:2")
    assert look("h100").devices == look("h100:1").devices


def test_mig_and_mixed() -> None:
    cut, whole = look("mig").devices
    assert (cut.mig_mode, whole.mig_mode) == ("enabled", "disabled")
    assert [part.profile for part in cut.mig] == ["3g.40gb"] + ["1g.10gb"] * 4
    files = [part.device_files for part in cut.mig]
    assert all(len(paths) == 3 for paths in files)
    assert len(set(files)) == len(files)
    assert [device.slurm_type for device in look("mixed").devices] == ["h100", "h100", "t4"]


@pytest.mark.parametrize(
    ("text", "full", "keys"),
    [
        ("h100:2+t4:1", "h100:2+t4:1", "h100 h100 t4"),
        ("h100+t4+h100", "h100:1+t4:1+h100:1", "h100 t4 h100"),
        (" H100 + T4 ", "h100:1+t4:1", "h100 t4"),
        ("mig+h100:2", "mig+h100:2", "h100-mig h100 h100 h100"),
        ("h100-mig+h100-mig7", "h100-mig:1+h100-mig7:1", "h100-mig h100-mig7"),
        ("mixed+mixed", "mixed+mixed", "h100 h100 t4 h100 h100 t4"),
        ("h100:1+mi300x:1", "h100:1+mi300x:1", "h100 mi300x"),
    ],
)
def test_sums_keep_the_order_in_which_they_are_written(text: str, full: str, keys: str) -> None:
    profile = parse_profile(text)
    assert profile.text == full
    assert [card.model.key for card in profile.cards] == keys.split()
    assert parse_profile(full) == profile


def test_each_vendor_counts_its_own_cards() -> None:
    cards = parse_profile("h100+mi300x:2+t4+mi210").cards
    assert [(card.vendor, card.index, card.minor) for card in cards] == [
        ("nvidia", 0, 0),
        ("amd", 0, 128),
        ("amd", 1, 129),
        ("nvidia", 1, 1),
        ("amd", 2, 130),
    ]
    found = look("h100:1+mi300x:1")
    assert (found.vendor, len(found.devices)) == ("mixed", 2)
    assert {device.slurm_type for device in found.devices} == {"h100", "mi300x"}


@pytest.mark.parametrize("key", MIG_MODELS)
def test_a_divided_card_is_seen_as_what_it_is(key: str) -> None:
    model = MIG_MODELS[key]
    for device in look(f"{key}:2").devices:
        assert (device.mig_mode, device.name) == ("enabled", model.name)
        assert [(part.profile, part.memory_mib) for part in device.mig] == [
            (part.profile, part.memory_mib) for part in model.mig
        ]
    assert sum(part.memory_mib for part in model.mig) < (model.memory_mib or 0)


_TERMS = st.lists(
    st.tuples(st.sampled_from([*MODELS, *MIG_MODELS]), st.integers(1, 4)), min_size=1, max_size=4
)


@given(_TERMS)
def test_cards_of_any_sum_are_told_apart(terms: list[tuple[str, int]]) -> None:
    profile = parse_profile("+".join(f"{key}:{count}" for key, count in terms))
    assert len(profile.cards) == sum(count for _, count in terms)
    assert len({card.address for card in profile.cards}) == len(profile.cards)
    assert len({card.minor for card in profile.cards}) == len(profile.cards)
    devices = look(profile.text).devices
    assert len(devices) == len(profile.cards)
    uuids = [device.uuid for device in devices if device.uuid]
    uuids += [part.uuid for device in devices for part in device.mig if part.uuid]
    assert len(set(uuids)) == len(uuids)
    files = [item.device_files for item in devices if not item.mig]
    files += [part.device_files for device in devices for part in device.mig]
    assert len(set(files)) == len(files)
    assert {path for paths in files for path in paths} <= set(device_files(profile))


def test_the_old_names_keep_their_uuids() -> None:
    """A cluster that is made up compares its cards with those of the last start by these."""
    assert [device.uuid for device in look("mixed").devices] == [
        device.uuid for device in look("h100:2+t4").devices
    ]
    assert look("mig").devices == look("h100-mig+h100").devices


def test_none_hides_what_there_is() -> None:
    found = look("none", base=Container("/dev/nvidia0", "/dev/nvidiactl"))
    assert (found.state, found.simulated, found.devices) == ("absent", True, ())


@pytest.mark.parametrize(
    "profile", ["h100:2", "mi300x:2", "mig", "mixed", "h100+t4+h100", "h100-mig7+mi300x"]
)
def test_a_container_with_all_nodes_sees_what_the_host_saw(profile: str) -> None:
    container = Container(*device_files(parse_profile(profile)))
    assert look(profile, base=container, host=False).devices == look(profile).devices


def test_a_container_sees_only_what_it_was_given() -> None:
    found = look("h100:4", base=Container("/dev/nvidia1", "/dev/nvidia3"), host=False)
    assert [device.device_files for device in found.devices] == [
        ("/dev/nvidia1",),
        ("/dev/nvidia3",),
    ]
    assert look("h100:4", base=Container(), host=False).state == "absent"
    one = look("mi300x:2", base=Container("/dev/kfd", "/dev/dri/renderD129"), host=False)
    assert [device.device_files for device in one.devices] == [("/dev/dri/renderD129",)]


def test_the_host_shows_through() -> None:
    machine = SimulatedMachine(LocalMachine(), "h100:2", devices_exist=True)
    real = LocalMachine()
    assert machine.read("/proc/meminfo").state == real.read("/proc/meminfo").state
    assert machine.system == real.system
    assert machine.which("sh") == real.which("sh")
    assert machine.which("nvidia-smi") is None


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("h10:2", "h100"),
        ("mi300:8", "mi300x"),
        ("mixd", "mixed"),
        ("rtx-4090", "rtx4090"),
        ("h100+t44", "t4"),
        ("h100-mig8", "h100-mig7"),
    ],
)
def test_an_unknown_profile_is_told_what_comes_near(text: str, near: str) -> None:
    with pytest.raises(DshpcError) as caught:
        parse_profile(text)
    assert caught.value.exit_code == Exit.USAGE
    assert near in caught.value.details.split("There are:")[0]
    assert "mi210" in caught.value.details


def test_too_many_are_told_what_would_do() -> None:
    for text, count, words in (
        ("h100:17", 17, "h100:8"),
        ("h100:8+t4:9", 17, "add up to 16"),
        ("h100+t4:0", 0, "t4:8"),
    ):
        with pytest.raises(DshpcError) as caught:
            parse_profile(text)
        assert f"{text}: a made-up machine has 1 to 16 GPUs, not {count}." == (caught.value.brief)
        assert words in caught.value.resolution[0]
    assert len(parse_profile("h100:8+t4:8").cards) == 16


@pytest.mark.parametrize(
    "text",
    ["h100:0", "h100:17", "h100:-1", "h100:x", "", ":", "h100:2:2", "h100+", "+h100", "h100++t4"]
    + ["h100+none", "none+none", "mig:2", "h100,t4"],
)
def test_bad_counts_are_usage_errors(text: str) -> None:
    with pytest.raises(DshpcError) as caught:
        parse_profile(text)
    assert caught.value.exit_code == Exit.USAGE


def test_a_disk_is_that_of_the_machine_below() -> None:
    class Small(LocalMachine):
        def disk_mib(self, path: str) -> int | None:
            return 1024 if path == "/tmp" else None

    machine = SimulatedMachine(Small(), "h100:2", devices_exist=True)
    assert (machine.disk_mib("/tmp"), machine.disk_mib("/var")) == (1024, None)


def test_made_up_nodes_have_the_kernels_numbers() -> None:
    machine = SimulatedMachine(EMPTY, "h100:2", devices_exist=True)
    assert machine.device_number("/dev/nvidia1") == (195, 1)
    assert (machine.device_number("/dev/nvidia7"), machine.changed("/dev/nvidia1")) == (None, None)
    machine = SimulatedMachine(EMPTY, "mi300x", devices_exist=True)
    assert machine.device_number("/dev/dri/renderD128") == (226, 128)
    assert machine.device_number("/dev/kfd") is None, "it is another one at each start"
