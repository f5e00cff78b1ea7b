"""The compose file as options of `podman create`: what is said, what is refused, whose ids there are."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.builtin_client.failing import ClientError
from dshpc_setup.podman_client.service import Here, Wanted, wanted, whose_ids

FOLDER = Path("/home/ada/lab")
ROOT = Here(rootless=False, controllers=frozenset(("pids", "memory")), limits={"nofile": 20000})
ADA = Here(rootless=True, uids=(1000, 65537), gids=(1000, 65537))
TEXT = """
services:
  slurm:
    image: "lab-slurm:none"
    build: {"context": "x"}
    container_name: "lab-slurm"
    hostname: "lab"
    extra_hosts: ["lab:127.0.0.1"]
    restart: unless-stopped
    stop_grace_period: 15s
    cap_drop: [ALL]
    cap_add: [CHOWN, KILL]
    security_opt: ["no-new-privileges:true"]
    shm_size: "1g"
    logging: {driver: "json-file", options: {max-size: "10240k", max-file: "5"}}
    environment: {DSHPC_PREFIX: "lab", PRICE: "5$$"}
    labels: {org.dshpc.project: "/home/ada/lab"}
    devices: ["/dev/null:/dev/nvidia0"]
    volumes:
      - "/home/ada/lab/config:/config:ro,z"
      - "state:/var/lib/dshpc/state"
volumes:
  state: {name: "lab-state", labels: {org.dshpc.project: "/home/ada/lab"}}
"""


def made(text: str = TEXT, here: Here = ADA) -> Wanted:
    (found,) = wanted(text, FOLDER, "lab", {}, here)
    return found


def after(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def with_key(line: str) -> str:
    return TEXT.replace("    hostname:", f"    {line}\n    hostname:")


def test_the_whole_line() -> None:
    found = made()
    words = found.create()
    assert words[:7] == [
        "create", "--name", "lab-slurm", "--restart", "unless-stopped", "--pull", "never",
    ]  # fmt: skip
    assert words[-1] == "lab-slurm:none"
    options = {
        "--systemd": ["false"],
        "--hostname": ["lab"],
        "--add-host": ["lab:127.0.0.1"],
        "--stop-timeout": ["15"],
        "--cap-drop": ["ALL"],
        "--cap-add": ["CHOWN", "KILL"],
        "--security-opt": ["no-new-privileges"],
        "--shm-size": ["1073741824b"],
        "--log-driver": ["k8s-file"],
        "--log-opt": ["max-size=52428800b"],
        "--env": ["DSHPC_PREFIX=lab", "PRICE=5$"],
        "--device": ["/dev/null:/dev/nvidia0"],
        "--volume": ["/home/ada/lab/config:/config:ro,z", "lab-state:/var/lib/dshpc/state"],
        "--uidmap": ["0:1:1000", "1000:0:1", "1001:1001:64536"],
        "--ulimit": [],
        "--pids-limit": [],
    }
    assert {option: after(words, option) for option in options} == options
    assert "--http-proxy=false" in words
    assert found.volumes == {"lab-state": {"org.dshpc.project": "/home/ada/lab"}}


def test_root_has_the_machines_ids_its_own_limits_and_no_cap_of_podmans() -> None:
    words = made(here=ROOT).create()
    assert after(words, "--uidmap") == after(words, "--gidmap") == []
    assert after(words, "--ulimit") == ["nofile=20000:20000"]
    assert after(words, "--pids-limit") == ["-1"]
    labels = after(words, "--label")
    assert not any(label.startswith("org.dshpc.ids") for label in labels)
    assert "org.dshpc.ids=mapped" in after(made().create(), "--label")


def test_a_run_beside_it_does_not_restart() -> None:
    words = made().run("lab-trial", ["dshpc-node", "check"], remove=True)
    assert words[:4] == ["run", "--rm", "--name", "lab-trial"]
    assert words[-3:] == ["lab-slurm:none", "dshpc-node", "check"]
    assert "--restart" not in words


@pytest.mark.parametrize(
    ("line", "option", "values"),
    [
        ("ulimits: {memlock: -1, stack: {soft: 8, hard: -1}}", "--ulimit", ["memlock=-1:-1", "stack=8:-1"]),
        ("pids_limit: 500", "--pids-limit", ["500"]),
        ("mem_limit: 1g", "--memory", ["1g"]),
        ("group_add: [44, 105]", "--group-add", ["44", "105"]),
        ("network_mode: host", "--network", ["host"]),
        (
            "deploy: {resources: {reservations: {devices: [{driver: cdi, device_ids: ['nvidia.com/gpu=0:1'], "
            "capabilities: [gpu]}]}}}",
            "--device",
            ["/dev/null:/dev/nvidia0", "nvidia.com/gpu=0:1"],
        ),
    ],
)  # fmt: skip
def test_other_keys(line: str, option: str, values: list[str]) -> None:
    assert after(made(with_key(line), ROOT).create(), option) == values


def test_cdi_among_devices_and_a_seccomp_profile_of_the_folders() -> None:
    text = TEXT.replace('["/dev/null:/dev/nvidia0"]', '["nvidia.com/gpu=all"]')
    text = text.replace('["no-new-privileges:true"]', '["seccomp=.dshpc/p.json", "label=disable"]')
    words = made(text, ROOT).create()
    assert after(words, "--device") == ["nvidia.com/gpu=all"]
    assert after(words, "--security-opt") == [
        "seccomp=/home/ada/lab/.dshpc/p.json", "label=disable",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            with_key("cpus: 2"),
            "services.slurm.cpus: dsHPC's reading of it for Podman does not carry it out",
        ),
        (with_key("pids_limit: 5"), "rootless Podman may not write the control group pids here"),
        (with_key("mem_limit: 1g"), "may not write the control group memory here"),
        (with_key("runtime: nvidia"), "services.slurm.runtime"),
        (with_key("deploy: {replicas: 2}"), "deploy: replicas is not carried out"),
        (
            with_key("deploy: {resources: {reservations: {devices: [{driver: nvidia}]}}}"),
            "Podman hands devices over by CDI, and not by 'nvidia'",
        ),
        (TEXT.replace("state:/var", "other:/var"), "the volume 'other' is not declared"),
        (TEXT.replace("state:/var", "state:var"), "is no volume"),
        (TEXT.replace("lab-state", "/etc"), "'/etc' is no name of a volume"),
        (TEXT.replace("max-file", "max-files"), "logging.options.max-files is not known to Podman"),
        (TEXT.replace("15s", "soon"), "is no duration"),
        ("services: [", "yaml"),
    ],
)
def test_what_cannot_be_carried_out_is_named(text: str, said: str) -> None:
    with pytest.raises(ClientError) as raised:
        made(text)
    assert said in str(raised.value)
    assert raised.value.code == 15


def test_another_file_is_another_container() -> None:
    key = "com.docker.compose.config-hash"
    assert made().labels[key] == made().labels[key]
    assert made().labels[key] != made(with_key("group_add: [4]")).labels[key]


@given(own=st.integers(1, 1 << 31), count=st.integers(1, 1 << 20), group=st.integers(1, 1 << 31))
def test_each_id_is_mapped_once_and_the_callers_own_is_his(
    own: int, count: int, group: int
) -> None:
    """From Podman's point of view the caller is 0, and 1 to count - 1 are of his range."""
    words = list(whose_ids(Here(rootless=True, uids=(own, count), gids=(group, count))))
    for option, mine in (("--uidmap", own), ("--gidmap", group)):
        parts = [tuple(map(int, part.split(":"))) for part in after(words, option)]
        there = sorted((first, size) for _, first, size in parts)
        inside = sorted((first, size) for first, _, size in parts)
        assert (mine, 0, 1) in parts
        assert sum(size for _, size in there) == count
        for spans in (there, inside):
            assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans))
        assert there[-1][0] + there[-1][1] == count


@given(st.text(), st.booleans())
def test_no_text_is_more_than_an_error(text: str, rootless: bool) -> None:
    try:
        made(text, Here(rootless, uids=(1, 65537), gids=(1, 65537)))
    except ClientError as error:
        assert str(error)


def test_each_service_is_a_container_by_its_own_name() -> None:
    text = (
        "services:\n  slurm: {image: x, container_name: lab-slurm, network_mode: host}\n"
        "  slurm-2: {image: x, container_name: lab-slurm-2, hostname: lab-2, network_mode: host}\n"
    )
    first, second = wanted(text, FOLDER, "lab", {}, Here(rootless=False))
    assert [(each.service, each.name) for each in (first, second)] == [
        ("slurm", "lab-slurm"),
        ("slurm-2", "lab-slurm-2"),
    ]
    assert second.options[second.options.index("--network") + 1] == "host"
    assert (
        first.labels["com.docker.compose.config-hash"]
        != second.labels["com.docker.compose.config-hash"]
    )
