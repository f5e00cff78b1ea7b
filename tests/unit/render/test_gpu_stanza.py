"""Mechanism x compose version x selection -> the keys of a service, and what YAML makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.passthrough.handover import DeviceRequest, GpuStanza, Handover
from dshpc_setup.render.configuration import ComposeFile, render_compose
from dshpc_setup.render.gpu_stanza import (
    NO_PROFILING,
    PROFILING_REASON,
    compose_version,
    gpu_stanza,
)

DRIVER_CAPABILITIES = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}

RESERVING = ("1.28.0", "1.29.2", "v2.0.0", "v2.26.1", "2.29.7", None, "", "unknown")
NEWEST = ("2.30.0", "v2.30.0-desktop.1", "2.40.3+ds1", "v5.0.1")
TOO_OLD = ("1.27.4", "1.8.0", "1.25.0-rc2")
EVERY = (*RESERVING, *NEWEST)

GPU = "GPU-5a1f0c3e-0000-0000-0000-000000000001"
MIG = "MIG-5a1f0c3e-0000-0000-0000-000000000002"
SELECTIONS = ((), ("0", "2"), (GPU,), (GPU, MIG))
KFD = ("/dev/kfd:/dev/kfd", "/dev/dri/renderD128:/dev/dri/renderD128")


def parsed(stanza: GpuStanza, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The service as YAML reads it back, with compose's own `$$` undone."""
    text = render_compose(
        ComposeFile(
            "lab", "lab-slurm", "lab", "i", "1g", ("c",), environment or dict(stanza.environment),
            {"org.dshpc.project": "/p"}, ("a:/b", *stanza.volumes), gpu=stanza,
        )
    )  # fmt: skip
    service = undollared(yaml.safe_load(text)["services"]["slurm"])
    assert isinstance(service, dict)
    assert "privileged" not in service
    return service


def undollared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: undollared(item) for key, item in value.items()}
    if isinstance(value, list):
        return [undollared(item) for item in value]
    return value.replace("$$", "$") if isinstance(value, str) else value


def reserved(stanza: GpuStanza) -> list[dict[str, Any]]:
    found = parsed(stanza)["deploy"]["resources"]["reservations"]["devices"]
    assert isinstance(found, list)
    return found


# -- CDI --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", NEWEST)
def test_cdi_names_are_devices_where_compose_knows_them(version: str) -> None:
    stanza = gpu_stanza(Handover("cdi", ids=("nvidia.com/gpu=all",)), version)
    assert (stanza.reservations, stanza.gpus, stanza.runtime) == ((), (), None)
    service = parsed(stanza)
    assert service["devices"] == ["nvidia.com/gpu=all"]
    assert "deploy" not in service


@pytest.mark.parametrize("version", RESERVING)
def test_cdi_is_reserved_where_compose_would_take_a_name_for_a_path(version: str | None) -> None:
    names = (f"nvidia.com/gpu={GPU}", "nvidia.com/gpu=1")
    stanza = gpu_stanza(Handover("cdi", ids=names), version)
    assert stanza.devices == ()
    assert reserved(stanza) == [
        {"driver": "cdi", "capabilities": ["gpu"], "device_ids": list(names)}
    ]


@pytest.mark.parametrize("version", EVERY)
def test_a_cdi_name_with_a_colon_never_stands_among_devices(version: str | None) -> None:
    # compose would make of it the device node nvidia.com/gpu=0 under the name 1
    stanza = gpu_stanza(Handover("cdi", ids=("nvidia.com/gpu=0:1",)), version)
    assert stanza.devices == ()
    assert stanza.reservations == (DeviceRequest("cdi", ("nvidia.com/gpu=0:1",)),)


def test_cdi_goes_together_with_the_nodes_of_another_vendor() -> None:
    both = Handover("cdi", ids=("nvidia.com/gpu=all",), devices=KFD, group_add=(44, 993))
    service = parsed(gpu_stanza(both, "2.30.0"))
    assert service["devices"] == ["nvidia.com/gpu=all", *KFD]
    assert service["group_add"] == ["44", "993"]
    older = gpu_stanza(both, "2.29.7")
    assert parsed(older)["devices"] == list(KFD)
    assert older.reservations == (DeviceRequest("cdi", ("nvidia.com/gpu=all",)),)


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_cdi_of_another_vendor_gets_no_variable_of_nvidia(vendor: str) -> None:
    stanza = gpu_stanza(Handover("cdi", ids=(f"{vendor}.com/gpu=all",)), "2.30.0")
    assert stanza.environment == {}


# -- device requests --------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", SELECTIONS)
@pytest.mark.parametrize("version", NEWEST)
def test_a_device_request_is_gpus_where_compose_carries_it_out(
    version: str, ids: tuple[str, ...]
) -> None:
    stanza = gpu_stanza(Handover("device-request", ids=ids), version)
    which = {"device_ids": list(ids)} if ids else {"count": "all"}
    service = parsed(stanza)
    assert service["gpus"] == [{"driver": "nvidia", **which}]
    assert "deploy" not in service
    assert stanza.environment == DRIVER_CAPABILITIES


@pytest.mark.parametrize("ids", SELECTIONS)
@pytest.mark.parametrize("version", RESERVING)
def test_a_device_request_is_a_reservation_before(
    version: str | None, ids: tuple[str, ...]
) -> None:
    stanza = gpu_stanza(Handover("device-request", ids=ids), version)
    which = {"device_ids": list(ids)} if ids else {"count": "all"}
    assert reserved(stanza) == [{"driver": "nvidia", "capabilities": ["gpu"], **which}]
    assert "gpus" not in parsed(stanza)
    assert stanza.environment == DRIVER_CAPABILITIES


def test_a_device_request_names_its_driver() -> None:
    stanza = gpu_stanza(Handover("device-request", driver="amd"), "2.30.0")
    assert parsed(stanza)["gpus"] == [{"driver": "amd", "count": "all"}]
    assert stanza.environment == {}


# -- the runtime ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [*EVERY, *TOO_OLD])
def test_the_runtime_is_the_same_for_every_version(version: str | None) -> None:
    chosen = Handover("runtime", environment={"NVIDIA_VISIBLE_DEVICES": f"{GPU},{MIG}"})
    service = parsed(gpu_stanza(chosen, version))
    assert service["runtime"] == "nvidia"
    assert service["environment"] == {
        "NVIDIA_VISIBLE_DEVICES": f"{GPU},{MIG}",
        **DRIVER_CAPABILITIES,
    }
    assert not {"gpus", "deploy", "devices"} & set(service)


@pytest.mark.parametrize(("ids", "visible"), [((), "all"), (("0", "2"), "0,2")])
def test_a_runtime_always_says_which_gpus(ids: tuple[str, ...], visible: str) -> None:
    # without the variable the runtime hands over none, in silence
    stanza = gpu_stanza(Handover("runtime", ids=ids), "2.30.0")
    assert stanza.environment["NVIDIA_VISIBLE_DEVICES"] == visible
    amd = gpu_stanza(Handover("runtime", ids=ids, driver="amd"), "2.30.0")
    assert (amd.runtime, amd.environment) == ("amd", {"AMD_VISIBLE_DEVICES": visible})


# -- device nodes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [*EVERY, *TOO_OLD])
def test_device_nodes_with_numeric_groups(version: str | None) -> None:
    service = parsed(gpu_stanza(Handover("devices", devices=KFD, group_add=(993, 44)), version))
    assert service["devices"] == list(KFD)
    assert service["group_add"] == ["993", "44"]
    assert not {"gpus", "deploy", "runtime"} & set(service)


@pytest.mark.parametrize("version", EVERY)
def test_wsl_gets_its_node_the_driver_of_windows_and_the_way_to_it(version: str | None) -> None:
    wsl = Handover(
        "devices",
        devices=("/dev/dxg:/dev/dxg",),
        volumes=("/usr/lib/wsl:/usr/lib/wsl:ro",),
        environment={"LD_LIBRARY_PATH": "/usr/lib/wsl/lib"},
    )
    service = parsed(gpu_stanza(wsl, version))
    assert service["devices"] == ["/dev/dxg:/dev/dxg"]
    assert service["volumes"] == ["a:/b", "/usr/lib/wsl:/usr/lib/wsl:ro"]
    assert service["environment"] == {"LD_LIBRARY_PATH": "/usr/lib/wsl/lib"}
    assert "group_add" not in service


def test_nothing_and_made_up_gpus() -> None:
    none = gpu_stanza(Handover("none"), "2.30.0")
    assert none == GpuStanza(comment="No GPU is handed over.")
    assert not {"gpus", "deploy", "runtime", "devices", "group_add"} & set(parsed(none, {"A": "b"}))
    made_up = gpu_stanza(Handover("simulated", devices=("/dev/null:/dev/nvidia0",)), "1.29.2")
    assert parsed(made_up, {"A": "b"})["devices"] == ["/dev/null:/dev/nvidia0"]
    assert made_up.environment == {}


# -- too old, and what the text of a version says ---------------------------------------------------


@pytest.mark.parametrize("version", TOO_OLD)
@pytest.mark.parametrize(
    "handover", [Handover("cdi", ids=("nvidia.com/gpu=all",)), Handover("device-request")]
)
def test_a_compose_that_knows_no_reservations_is_refused(version: str, handover: Handover) -> None:
    with pytest.raises(DshpcError) as caught:
        gpu_stanza(handover, version)
    assert version in caught.value.brief
    assert "1.28" in caught.value.details
    assert "Compose v2" in caught.value.resolution[0]


@pytest.mark.parametrize("mechanism", ["none", "simulated", "devices", "runtime"])
def test_what_needs_no_reservation_is_not_refused(mechanism: Any) -> None:
    assert gpu_stanza(Handover(mechanism), "1.27.4").reservations == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.29.2", (1, 29)),
        ("v2.26.1", (2, 26)),
        ("2.40.3+ds1", (2, 40)),
        ("2.26.1-4", (2, 26)),
        ("v2.30.0-desktop.1", (2, 30)),
        ("5.0", (5, 0)),
        ("2", None),
        ("dev", None),
        ("", None),
        (None, None),
        ("\u0662.\u0663", None),  # digits that are none of a version's
    ],
)
def test_versions(text: str | None, version: tuple[int, int] | None) -> None:
    assert compose_version(text) == version


# -- profiling --------------------------------------------------------------------------------------

AMD = (
    Handover("devices", devices=KFD),
    Handover("cdi", ids=("amd.com/gpu=0",)),
    Handover("runtime", driver="amd"),
    Handover("device-request", driver="amd"),
    Handover("device-request", devices=KFD),  # NVIDIA's, with AMD's nodes beside it
)
NOT_AMD = (
    Handover("none"),
    Handover("cdi", ids=("nvidia.com/gpu=all",)),
    Handover("device-request"),
    Handover("runtime"),
    Handover("devices", devices=("/dev/dri/renderD128:/dev/dri/renderD128",)),
    Handover("devices", devices=("/dev/dxg:/dev/dxg",)),
    Handover("simulated", devices=("/dev/null:/dev/kfd",)),
    Handover("cdi", ids=("example.com/amd.com/gpu=0",)),
)


@pytest.mark.parametrize("handover", AMD)
def test_profiling_opens_what_amds_tools_need_and_says_so(handover: Handover) -> None:
    stanza = gpu_stanza(handover, "2.30.0", profiling=True)
    assert stanza.comment.splitlines()[1:] == [PROFILING_REASON]
    service = parsed(stanza)
    assert service["security_opt"] == ["no-new-privileges:true", "seccomp=unconfined"]
    assert service["cap_add"][-2:] == ["SETUID", "SYS_PTRACE"]
    assert service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("handover", NOT_AMD)
def test_profiling_opens_nothing_for_others_and_says_so(handover: Handover) -> None:
    stanza = gpu_stanza(handover, "2.30.0", profiling=True)
    assert stanza.comment.splitlines()[1:] == [NO_PROFILING]
    assert (stanza.security_opt, stanza.cap_add) == ((), ())


@pytest.mark.parametrize("handover", [*AMD, *NOT_AMD])
def test_nothing_is_opened_unasked(handover: Handover) -> None:
    service = parsed(gpu_stanza(handover, "2.30.0"), {"A": "b"})
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "SYS_PTRACE" not in service["cap_add"]
    assert len(gpu_stanza(handover, "2.30.0").comment.splitlines()) == 1


# -- properties -------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NODE = TEXT.map(lambda text: f"/dev/{text}:/dev/{text}")
HANDOVERS = st.builds(
    Handover,
    st.sampled_from(["none", "simulated", "cdi", "device-request", "runtime", "devices"]),
    ids=st.lists(TEXT, max_size=4).map(tuple),
    driver=st.sampled_from(["nvidia", "amd"]),
    devices=st.lists(NODE, max_size=4).map(tuple),
    volumes=st.lists(NODE, max_size=2).map(tuple),
    group_add=st.lists(st.integers(0, 2**32 - 2), max_size=4).map(tuple),
    environment=st.dictionaries(st.sampled_from(["LD_LIBRARY_PATH", "X"]), TEXT, max_size=2),
)


@given(HANDOVERS, st.sampled_from(EVERY), st.booleans())
def test_yaml_gives_back_exactly_what_was_meant(
    handover: Handover, version: str | None, profiling: bool
) -> None:
    stanza = gpu_stanza(handover, version, profiling=profiling)
    service = parsed(stanza)
    assert service.get("devices", []) == list(stanza.devices)
    assert service.get("group_add", []) == [str(group) for group in stanza.group_add]
    assert service["volumes"] == ["a:/b", *stanza.volumes]
    assert (service["environment"] or {}) == stanza.environment
    requests = [*service.get("gpus", [])]
    if "deploy" in service:
        requests += service["deploy"]["resources"]["reservations"]["devices"]
    expected = [
        {
            "driver": item.driver,
            **({"device_ids": list(item.ids)} if item.ids else {"count": "all"}),
        }
        for item in (*stanza.gpus, *stanza.reservations)
    ]
    assert [{k: v for k, v in one.items() if k != "capabilities"} for one in requests] == expected


@given(HANDOVERS, st.sampled_from(EVERY))
def test_every_gpu_that_was_handed_over_stands_in_the_stanza_once(
    handover: Handover, version: str | None
) -> None:
    stanza = gpu_stanza(handover, version)
    said = [name for item in (*stanza.gpus, *stanza.reservations) for name in item.ids]
    said += stanza.devices
    assert len(said) == len(set(said))
    if handover.mechanism in ("cdi", "device-request"):
        assert set(handover.ids) <= set(said)
    assert set(handover.devices) <= set(said)
    assert set(handover.group_add) == set(stanza.group_add)
    assert dict(handover.environment).items() <= dict(stanza.environment).items()
