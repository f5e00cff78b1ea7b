"""What the built-in engine makes of the compose file that we render, and of one that it cannot carry out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.builtin.archive import Unpacked
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin.wanted import Device, Wanted
from dshpc_setup.builtin_client import compose, compose_text
from dshpc_setup.builtin_client.failing import ClientError
from dshpc_setup.builtin_client.plan import Planned, PlannedMount, device_of, mount_of
from dshpc_setup.builtin_client.store import Container, Store
from dshpc_setup.builtin_client.words import Options
from dshpc_setup.machine import Machine

FOLDER = Path("/p")
FILE = """
services:
  slurm:
    image: "lab-slurm:nvidia"
    build: {"context": "./.dshpc/build"}
    container_name: "lab-slurm"
    hostname: "lab"
    extra_hosts: ["lab:127.0.0.1"]
    restart: unless-stopped
    stop_grace_period: 15s
    cap_drop: [ALL]
    cap_add: [CHOWN, SETUID]
    security_opt: [no-new-privileges:true]
    shm_size: "1g"
    logging: {driver: "json-file", options: {max-size: "10240k", max-file: "5"}}
    environment:
      DSHPC_PREFIX: "lab"
      PRICE: "$$5 ${GIVEN} ${MISSING:-else}"
    labels: {org.dshpc.project: "/p"}
    devices: ["/dev/nvidia0:/dev/nvidia0", "/dev/null:/dev/nvidia1"]
    volumes: ["/p/config:/config:ro", "/p/work:/p/work", "state:/var/lib/dshpc/state"]
volumes:
  state: {name: "lab-state", labels: {org.dshpc.project: "/p"}}
"""


def planned(text: str = FILE) -> Planned:
    (found,) = compose.planned_of(text, FOLDER, "lab", {"GIVEN": "x"})
    return found


def test_the_file_that_we_render() -> None:
    found = planned()
    assert (found.name, found.image, found.host_name) == ("lab-slurm", "lab-slurm:nvidia", "lab")
    assert found.environment == {"DSHPC_PREFIX": "lab", "PRICE": "$5 x else"}
    assert found.mounts == (
        PlannedMount("/p/config", "/config", read_only=True),
        PlannedMount("/p/work", "/p/work"),
        PlannedMount("lab-state", "/var/lib/dshpc/state", volume={"org.dshpc.project": "/p"}),
    )
    assert found.devices == (
        Device("/dev/nvidia0", "/dev/nvidia0"),
        Device("/dev/null", "/dev/nvidia1"),
    )
    assert found.capabilities == ("CHOWN", "SETUID")
    assert (found.shm_mib, found.log_bytes, found.grace_s) == (1024, 10240 << 10, 15.0)
    assert found.labels["com.docker.compose.project"] == "lab"
    assert found.labels["com.docker.compose.service"] == "slurm"


def test_another_file_is_another_container() -> None:
    key = "com.docker.compose.config-hash"
    same = planned().labels[key]
    assert planned().labels[key] == same
    assert planned(FILE.replace('"1g"', '"2g"')).labels[key] != same


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('    hostname: "lab"', "    mem_limit: 1g", "services.slurm.mem_limit"),
        ('    hostname: "lab"', "    deploy: {}", "services.slurm.deploy"),
        ('    image: "lab-slurm:nvidia"', "", "services.slurm.image"),
        ('"1g"', '"much"', "'much' is no size"),
        ("15s", "soon", "'soon' is no duration"),
        ("state:/var", "other:/var", "the volume 'other' is not declared"),
        ('"lab-state"', '"../.."', "'../..' is no name of a volume"),
        ('"lab-state"', '"/etc"', "'/etc' is no name of a volume"),
        ('"lab-state"', '".hidden"', "'.hidden' is no name of a volume"),
        ('"lab-state",', '"lab-state", driver: nfs,', "'state': driver is not carried out"),
        ('"lab-slurm"\n', '"../lab"\n', "'../lab' is no name of a container"),
        ("/dev/nvidia0:/dev", "/etc/shadow:/dev", "is no device node"),
        ("  slurm:", "  slurm: [", "yaml"),
    ],
)
def test_what_it_cannot_carry_out_is_an_error(before: str, after: str, said: str) -> None:
    with pytest.raises(ClientError, match=said.replace(".", r"\.").replace("'", ".")) as error:
        planned(FILE.replace(before, after, 1))
    assert error.value.code == 15


@pytest.mark.parametrize(
    ("text", "size"), [("1g", 1 << 30), ("10240k", 10 << 20), ("64mb", 64 << 20), ("5", 5)]
)
def test_sizes(text: str, size: int) -> None:
    assert compose_text.size_of(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("1m30s", 90), ("1h", 3600), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert compose_text.seconds_of(text) == seconds


@given(st.text())
def test_any_text_is_a_container_or_an_error_of_ours(text: str) -> None:
    try:
        planned(text)
    except ClientError as error:
        assert str(error)


@given(
    st.lists(st.tuples(st.sampled_from(("-e", "--user")), st.text(min_size=1))), st.lists(st.text())
)
def test_options_end_where_the_program_begins(
    options: list[tuple[str, str]], program: list[str]
) -> None:
    argv = [word for pair in options for word in pair]
    found = Options([*argv, "container", *program], {"-e": "value", "--user": "value"})
    assert found.words == ["container", *program]
    assert found.values("-e") == [value for name, value in options if name == "-e"]


@pytest.mark.parametrize("argv", [["--privileged", "x"], ["-e"], ["--user=a", "--rm=b", "x"]])
def test_an_option_that_is_not_known_is_an_error(argv: list[str]) -> None:
    with pytest.raises(ClientError) as error:
        Options(argv, {"-e": "value", "--user": "value", "--rm": "nothing"})
    assert error.value.code == 125


@pytest.mark.parametrize("text", ["/a", "/a:b", "/a:/b:exec", "a:b:c:d"])
def test_mounts_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no volume"):
        mount_of(text)


def test_a_device_keeps_its_name_unless_another_is_given() -> None:
    assert device_of("/dev/kfd") == Device("/dev/kfd", "/dev/kfd")
    assert device_of("/dev/null:/dev/kfd:rw") == Device("/dev/null", "/dev/kfd")


def test_a_volume_of_another_clusters_container_is_refused(tmp_path: Path) -> None:
    """Its queue would have two writers."""
    store = Store({"XDG_CACHE_HOME": str(tmp_path)})
    ids = Ids("root")
    root = Rootfs("ab" * 32, ids, str(tmp_path), Unpacked(0, 0, 0, None))
    wanted = Wanted("other-slurm", root, str(tmp_path), ("/init",), "other")
    other = Container(
        "1", "other-slurm", "i", "now", wanted, {compose_text.PROJECT: "other"}, {"/s": "lab-state"}
    )
    store.put("container", other.name, other)
    (tmp_path / "docker-compose.yml").write_text(FILE)
    told = ["-p", "lab", "--project-directory", str(tmp_path)]
    for verb in (["up", "-d"], ["run", "--rm", "slurm", "true"]):
        with pytest.raises(ClientError, match="lab-state is in use by the container other-slurm"):
            compose.main(cast("Machine", None), store, [*told, *verb])
    store.put("container", other.name, replace(other, labels={compose_text.PROJECT: "lab"}))
    with pytest.raises(ClientError, match="No such image"):  # it gets as far as that
        compose.main(cast("Machine", None), store, [*told, "up", "-d"])
