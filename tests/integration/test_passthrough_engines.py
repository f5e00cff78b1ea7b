"""`dshpc passthrough` on real engines: the way that works is found, each cause is produced and named."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.passthrough import findings
from tests.integration.bench import cdi, hardware
from tests.integration.bench.engines import KINDS, Bench, Kind
from tests.integration.bench.park import Park
from tests.integration.shown import Terminal, documented

pytest_plugins = ("tests.integration.bench.fixtures",)

DOCKERS: list[Kind] = ["host", "trixie", "newest"]
WITH_CDI: list[Kind] = ["trixie", "newest", "podman"]
EACH = pytest.mark.parametrize("kind", KINDS, indirect=True)
AMD_ENGINES: list[Kind] = ["host", "newest", "podman"]
ADA = {"SUDO_UID": "1000", "SUDO_GID": "1000", "SUDO_USER": "ada"}
OTHER = "/etc/dshpc-standin/other.txt"  # what NVML is told in a container, where that differs
OLD_DRIVER = "535.183.01"
HANGS_S = "4"  # by then the container has been made, on a busy machine too

Row = tuple[str, str | None]  # state and finding


@dataclass(frozen=True)
class Outcome:
    """What the command said: a row for each mechanism, and the whole object."""

    exit_code: int
    said: dict[str, Any]

    @property
    def chosen(self) -> str:
        return str(self.said["handover"]["mechanism"])

    def row(self, mechanism: str) -> Row:
        found = self.attempt(mechanism)
        return found["state"], found["finding"]

    def attempt(self, mechanism: str) -> dict[str, Any]:
        rows = [item for item in self.said["attempts"] if item["mechanism"] == mechanism]
        assert len(rows) == 1
        return dict(rows[0])


def passthrough(bench: Bench, *arguments: str, env: dict[str, str] | None = None) -> Outcome:
    """The command as a person gives it."""
    done = bench.dshpc("passthrough", "--json", *arguments, env=env)
    assert done.stdout.startswith("{"), done.stderr
    said = json.loads(done.stdout)
    assert done.returncode == said["exit_code"], done.stderr
    return Outcome(done.returncode, said)


@pytest.fixture
def clean(broken: Bench) -> Iterator[Bench]:
    """A machine for a fault, on which no test container may be left."""
    yield broken
    left = broken.left_behind()
    if left:
        broken.docker("rm", "--force", *left)
    assert not left, "test containers were left behind"


# -- before anything is installed; these tests stand first ------------------------------------------


@EACH
def test_nothing_is_installed(bare: Bench) -> None:
    found = passthrough(bare)
    assert found.exit_code == 2
    assert not found.said["works"]
    assert (
        found.row("cdi")
        == {
            "host": ("impossible", findings.ENGINE_WITHOUT_CDI),
            "trixie": ("impossible", findings.CDI_OFF),
            "newest": ("impossible", findings.NO_CDI_SPEC),
            "podman": ("impossible", findings.NO_CDI_SPEC),
        }[bare.kind]
    )
    if bare.kind == "podman":
        assert found.row("device-request") == ("impossible", findings.PODMAN)
    else:
        assert found.row("device-request") == ("fails", findings.NO_TOOLKIT)
        assert "could not select device driver" in found.attempt("device-request")["evidence"][0]
    assert found.row("devices")[0] == "impossible"


@pytest.mark.parametrize("kind", DOCKERS, indirect=True)
def test_the_engine_was_not_restarted_since(bare: Bench) -> None:
    hardware.add_hook(bare)
    found = passthrough(bare)
    assert found.row("device-request") == ("fails", findings.NOT_RESTARTED)
    assert found.row("runtime") == ("impossible", findings.RUNTIME_NOT_REGISTERED)
    assert "restart" in json.dumps(found.attempt("device-request")["fix"])


# -- with everything installed ----------------------------------------------------------------------


@EACH
def test_the_way_that_works_is_found(whole: Bench) -> None:
    found = passthrough(whole)
    assert found.exit_code == 0
    assert found.chosen == {"host": "device-request"}.get(whole.kind, "cdi")
    works = [row["mechanism"] for row in found.said["attempts"] if row["state"] == "works"]
    assert works == {
        "host": ["device-request", "runtime"],
        "podman": ["cdi"],
    }.get(whole.kind, ["cdi", "device-request", "runtime"])
    assert [gpu["uuid"] for gpu in found.said["gpus"]] == [card.uuid for card in hardware.CARDS]


@EACH
def test_one_selected_gpu(whole: Bench) -> None:
    uuid = hardware.CARDS[1].uuid
    found = passthrough(whole, "--devices", uuid)
    assert found.exit_code == 0
    assert json.dumps(found.said["handover"]).count(uuid) == 1
    assert hardware.CARDS[0].uuid not in json.dumps(found.said["handover"])


@EACH
def test_as_the_user_that_ran_sudo(whole: Bench) -> None:
    found = passthrough(whole, env=ADA)
    assert found.said["user"] == {"uid": 1000, "gid": 1000}
    assert found.exit_code == 0


@dataclass(frozen=True)
class Fault:
    """A thing that is wrong on a machine, and the finding that each mechanism has to name."""

    name: str
    make: Callable[[Bench, hardware.Built], None]
    hook: str | None = None  # what --gpus and the runtime find; None: they work all the same
    cdi: str | None = None
    env: dict[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> list[Kind]:
        """The engines that have a mechanism with this fault."""
        return [
            *(DOCKERS if self.hook else ()),
            *(kind for kind in WITH_CDI if self.cdi and not (self.hook and kind in DOCKERS)),
        ]


def _few_by_hook(bench: Bench, _: hardware.Built) -> None:
    hardware.break_hook(bench, LIMIT=1)


def _closed_nodes(bench: Bench, _: hardware.Built) -> None:
    # Podman gives the nodes to the container's user, whom this mode keeps out as well
    hardware.add_nodes(bench, hardware.NVIDIA_NODES, mode=0o600)
    cdi.write_spec(bench, cdi.nvidia_spec(mode=0o040))


def _no_library(bench: Bench, _: hardware.Built) -> None:
    hardware.break_hook(bench, OMIT="lib")


def _no_compute(bench: Bench, _: hardware.Built) -> None:
    hardware.break_hook(bench, OMIT="libcuda")


def _old_libraries(bench: Bench, built: hardware.Built) -> None:
    for name, content in (("libcuda", built.cuda), ("libnvidia-ml", built.nvml)):
        hardware.add_library(bench, name, content, OLD_DRIVER)
        hardware.add_library(bench, name, content)  # the machine's own stays the one in use
    hardware.break_hook(bench, VERSION=OLD_DRIVER)
    cdi.write_spec(bench, cdi.nvidia_spec(driver=OLD_DRIVER))


def _refuses(words: str) -> Callable[[Bench, hardware.Built], None]:
    def make(bench: Bench, _: hardware.Built) -> None:
        hardware.break_hook(bench, REFUSE=words)

    return make


def _spec(**changes: Any) -> Callable[[Bench, hardware.Built], None]:
    def make(bench: Bench, _: hardware.Built) -> None:
        cdi.write_spec(bench, cdi.nvidia_spec(**changes))

    return make


def _mismatch_inside(bench: Bench, _: hardware.Built) -> None:
    bench.put(OTHER, hardware.nvml_text(more="fail nvmlInit_v2 18"))
    cdi.write_spec(bench, cdi.nvidia_spec(described_by=OTHER))


def _other_uuids(bench: Bench, _: hardware.Built) -> None:
    strangers = [
        hardware.Card(card.minor, card.uuid.replace("GPU-5a", "GPU-77"), card.bus)
        for card in hardware.CARDS
    ]
    bench.put(OTHER, hardware.nvml_text(strangers))
    cdi.write_spec(bench, cdi.nvidia_spec(described_by=OTHER))


def _unreadable_spec(bench: Bench, _: hardware.Built) -> None:
    cdi.write_text(bench, "{ this is no specification")


def _two_specs(bench: Bench, _: hardware.Built) -> None:
    cdi.write_spec(bench, cdi.nvidia_spec(), "second")


def _spec_without_the_card(bench: Bench, _: hardware.Built) -> None:
    cdi.write_spec(bench, cdi.plain_spec("nvidia.com/gpu", {"7": ["/dev/nvidia0"]}))


GONE = hardware.Card(5, "GPU-5a2b6c30-0005-4c1e-9d5a-000000000005", "00000000:5d:00")
FAULTS = (
    Fault("fewer by the hook", _few_by_hook, hook=findings.FEWER_GPUS),
    Fault("node closed", _closed_nodes, findings.NODE_DENIED, findings.NODE_DENIED,
          env=ADA),
    Fault("no library", _no_library, hook=findings.LIBRARY_DOES_NOT_LOAD),
    Fault("no compute", _no_compute, hook=findings.NO_COMPUTE_CAPABILITY),
    Fault("library of another version", _old_libraries, findings.LIBRARY_OF_ANOTHER_VERSION,
          findings.STALE_CDI_SPEC),
    Fault("image too new, by the hook", _refuses(
        "requirement error: unsatisfied condition: cuda>=12.9, please update your driver to a newer "
        "version, or use an earlier cuda container"), hook=findings.IMAGE_TOO_NEW),
    Fault("versions differ, by the hook", _refuses(
        "initialization error: nvml error: driver/library version mismatch"),
        hook=findings.VERSIONS_DIFFER),
    Fault("library missing, by the hook", _refuses(
        "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object "
        "file: no such file or directory"), hook=findings.NO_LIBRARY),
    Fault("fewer by CDI", _spec(cards=hardware.CARDS[:1]), cdi=findings.STALE_CDI_SPEC),
    Fault("a node that is gone", _spec(cards=(*hardware.CARDS, GONE)), cdi=findings.STALE_CDI_SPEC),
    Fault("a library that is gone", _spec(driver="515.65.01"), cdi=findings.STALE_CDI_SPEC),
    Fault("versions differ inside", _mismatch_inside, cdi=findings.VERSIONS_DIFFER),
    Fault("other GPUs inside", _other_uuids, cdi=findings.OTHER_GPUS),
    Fault("specification unreadable", _unreadable_spec, cdi=findings.CDI_SPEC_UNREADABLE),
    Fault("two specifications of the same name", _two_specs, cdi=findings.CDI_SPEC_UNREADABLE),
    Fault("name not in the specification", _spec_without_the_card, cdi=findings.STALE_CDI_SPEC),
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        pytest.param(kind, fault, id=f"{kind}-{fault.name}")
        for kind in KINDS
        for fault in FAULTS
        if kind in fault.kinds
    ],
    indirect=["kind"],
)
def test_a_cause_is_named(clean: Bench, built: hardware.Built, fault: Fault) -> None:
    fault.make(clean, built)
    cdi.wait_taken_up(clean)
    found = passthrough(clean, env=fault.env)
    actual: dict[str, Row] = {}
    wanted: dict[str, Row] = {}
    if clean.kind in DOCKERS:
        for mechanism in ("device-request", "runtime"):
            actual[mechanism] = found.row(mechanism)
            wanted[mechanism] = ("fails", fault.hook) if fault.hook else ("works", None)
    if clean.kind in WITH_CDI:
        state, finding = found.row("cdi")
        actual["cdi"] = ("works" if state == "works" else "fails", finding)
        wanted["cdi"] = ("fails", fault.cdi) if fault.cdi else ("works", None)
    assert actual == wanted, json.dumps(found.said["attempts"], indent=1)
    assert found.said["works"] == any(row[0] == "works" for row in wanted.values())


@pytest.mark.parametrize("kind", ["newest"], indirect=True)
def test_what_readme_shows_of_an_old_specification(clean: Bench, tmp_path: Path) -> None:
    cdi.write_spec(clean, cdi.nvidia_spec(driver=OLD_DRIVER))
    cdi.wait_taken_up(clean)
    item = documented("README.md", "./dshpc passthrough")
    done = clean.dshpc("passthrough", env={**ADA, "COLUMNS": "80", "NO_COLOR": "1"})
    Terminal(tmp_path, {}).compare(item, done.stdout, done.stderr)


# -- hangs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WITH_CDI, indirect=True)
def test_a_driver_that_hangs_in_the_container(clean: Bench) -> None:
    clean.put(OTHER, hardware.nvml_text(more="hang nvmlInit_v2"))
    cdi.write_spec(clean, cdi.nvidia_spec(described_by=OTHER))
    cdi.wait_taken_up(clean)
    started = time.monotonic()
    found = passthrough(clean, "--deadline", HANGS_S)
    assert found.row("cdi") == ("fails", findings.TEST_HUNG)
    assert time.monotonic() - started < 60
    assert not found.said["works"]
    if clean.kind in DOCKERS:  # a driver that hung once is not asked again
        assert found.row("device-request")[0] == "untested"
    assert clean.left_behind() == []


@pytest.mark.parametrize("kind", ["host"], indirect=True)
def test_a_hook_that_hangs(clean: Bench) -> None:
    """The engine itself cannot remove that container: it is told of, and goes when the hook ends.

    So does every Docker (tests/integration/test_bench.py); it takes long, so that one must do here.
    """
    cdi.remove_spec(clean)
    clean.put(hardware.HANG, "")
    try:
        found = passthrough(clean, "--deadline", HANGS_S)
        attempt = found.attempt("device-request")
        assert (attempt["state"], attempt["finding"]) == ("fails", findings.TEST_HUNG)
        assert found.row("runtime")[0] == "untested"
        assert len(clean.left_behind()) == 1
        assert f"docker rm -f {clean.left_behind()[0]}" in attempt["reason"]
    finally:
        clean.remove(hardware.HANG)
    until = time.monotonic() + 60
    while clean.left_behind():
        assert time.monotonic() < until, "the container stays"
        time.sleep(0.2)


# -- images -----------------------------------------------------------------------------------------


@pytest.fixture
def image_of(whole: Bench) -> Iterator[Callable[..., str]]:
    """Makes an image of the base: with a variable, or with what a script leaves in it."""
    made: list[str] = []

    def make(change: str = "", script: str = "true") -> str:
        name = f"dshpc-bench-image-{len(made)}"
        made.append(name)
        whole.docker("run", "--name", name, "--network", "none", whole.image, "sh", "-c", script)
        changes = ["--change", change] if change else []
        whole.docker("commit", *changes, name, f"{name}:1")
        return f"{name}:1"

    yield make
    for name in made:
        whole.docker("rm", "--force", name)
        whole.docker("rmi", f"{name}:1")


@EACH
def test_an_image_that_is_too_new(whole: Bench, image_of: Callable[..., str]) -> None:
    """NVIDIA's hook refuses it, so it is not started; CDI does not look, so it works with a warning."""
    found = passthrough(whole, "--image", image_of("ENV NVIDIA_REQUIRE_CUDA=cuda>=12.9"))
    if whole.kind in DOCKERS:
        for mechanism in ("device-request", "runtime"):
            attempt = found.attempt(mechanism)
            assert found.row(mechanism) == ("fails", findings.IMAGE_TOO_NEW)
            assert attempt["ms"] is None  # no container was started
    if whole.kind in WITH_CDI:
        assert found.row("cdi") == ("works", None)
        assert [item["finding"] for item in found.said["warnings"]] == [findings.IMAGE_TOO_NEW]
    assert found.exit_code == (1 if whole.kind in WITH_CDI else 2)
    fits = passthrough(whole, "--image", image_of("ENV NVIDIA_REQUIRE_CUDA=cuda>=12.4"))
    assert (fits.exit_code, fits.said["warnings"]) == (0, [])


@pytest.mark.parametrize("kind", DOCKERS, indirect=True)
def test_an_image_with_a_driver_in_it(whole: Bench, image_of: Callable[..., str]) -> None:
    library = f"{hardware.LIBRARIES}/libnvidia-ml.so.1"
    found = passthrough(whole, "--image", image_of(script=f"echo > {library}"))
    for mechanism in ("device-request", "runtime"):
        assert found.row(mechanism) == ("fails", findings.DRIVER_IN_IMAGE)


@EACH
def test_no_image_is_ever_pulled(whole: Bench) -> None:
    done = whole.dshpc("passthrough", "--json", "--image", "dshpc-no-such-image:1")
    assert done.returncode == 2
    assert "dshpc-no-such-image:1 is not on this machine" in done.stdout + done.stderr


# -- AMD --------------------------------------------------------------------------------------------


@pytest.fixture
def amd(park: Park, kind: Kind) -> Bench:
    return park.amd(kind)


@pytest.mark.parametrize("kind", AMD_ENGINES, indirect=True)
def test_amd_device_nodes_with_numeric_groups(amd: Bench) -> None:
    found = passthrough(amd, env=ADA)
    assert found.row("devices") == ("works", None), found.said["attempts"]
    handover = found.attempt("devices")["handover"]
    assert handover["group_add"] == [109]
    assert {item.split(":")[0] for item in handover["devices"]} == set(hardware.AMD_NODES)
    assert found.chosen == "devices"
    assert amd.left_behind() == []


@pytest.mark.parametrize("kind", AMD_ENGINES, indirect=True)
def test_amd_nodes_that_no_group_opens(amd: Bench) -> None:
    hardware.add_nodes(amd, hardware.AMD_NODES, mode=0o600)
    try:
        found = passthrough(amd, env=ADA)
        assert found.row("devices") == ("fails", findings.AMD_GROUP)
        assert found.exit_code == 2
    finally:
        hardware.add_nodes(amd, hardware.AMD_NODES, 0o660, 109)


@pytest.mark.parametrize("kind", ["newest", "podman"], indirect=True)
def test_amd_by_cdi(amd: Bench) -> None:
    try:
        cdi.write_spec(amd, cdi.amd_spec(cards=2), "amd")
        cdi.wait_taken_up(amd)
        assert passthrough(amd, env=ADA).row("cdi") == ("fails", findings.STALE_CDI_SPEC)
        cdi.write_spec(amd, cdi.amd_spec(), "amd")
        cdi.wait_taken_up(amd)
        found = passthrough(amd, env=ADA)
        assert found.row("cdi") == ("works", None), found.said["attempts"]
        assert found.chosen == "cdi"
    finally:
        cdi.remove_spec(amd, "amd")
