"""No secret is in a report, in whatever place and form it was; a thing has one pseudonym everywhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from dshpc_setup.bundle import scrubbed
from dshpc_setup.bundle.sources import Sources
from dshpc_setup.diagnose import Finding, diagnose
from dshpc_setup.errors import Fix
from dshpc_setup.files.ownership import digest
from dshpc_setup.observed import stored
from dshpc_setup.observed.model import (
    ContainerSeen,
    Disk,
    Inside,
    KernelLog,
    NodeSeen,
    ProjectFile,
)
from dshpc_setup.record import recorder
from dshpc_setup.settings import load
from dshpc_setup.slurm.blocked_jobs import Stuck
from dshpc_setup.terminal.reporter import Silent
from tests.unit.bundle import made
from tests.unit.diagnose import known as cases

UUID = "GPU-8a5c1b2d-1111-4222-8333-444455556666"
SECRETS = {
    # names
    "other node": "zetafarm-2",
    "node name": "rack4-n3", "domain": "hpc.corp-zeta.test", "login node": "login-zeta9",
    "mail server": "mail.zeta-mail.test", "prefix": "zeta-lab", "user": "carolz", "other user": "davez",
    "user of the queue": "erinz", "user in a log": "frankz", "user of a reason": "gracez",
    "mail address": "heidiz@zeta-mail.test", "home": "/net/people/carolz", "uid": "61234",
    "job name": "protein-zeta7", "killed job": "secret-run-42", "job of a log": "merger-plan-9",
    "program": "zetasolver",
    # places
    "project folder": "/srv/groups/acquisition-x/cluster-q", "mount source": "/mnt/tank/customer-77",
    "mount target": "/customer-data-77", "volume": "vault-zeta-vol", "work folder": "/pool/patients-9",
    "engine's disk": "/raid/zeta-engine", "registry": "registry.zeta-images.test",
    "mirror": "apt.zeta-mirror.test",
    # numbers
    "uuid": UUID, "mig uuid": "9b6d2c3e-1111-4222-8333-444455558888", "serial": "1741903615528",
    "usb serial": "ZX81AA1093", "ipv4": "10.44.0.77", "ipv6": "2a02:8071:22c1::17",
    "mac": "3c:ec:ef:1a:2b:3c", "listening": "192.168.77.12",
    "container id": "3f2a9c1b7d5e" + "0a1b" * 13,
    # passwords
    "proxy password": "pr0xyPa55word", "proxy of the engine": "dock3rPr0xy!",
    "environment": "wandb-K3y-0011223344",
    "database password": "dbPass-9981-zz", "compose secret": "c0mpose-Secr3t",
    "quoted password": "two words 77 Long",
    "storage pass": "St0ragePass77", "comment token": "ghp_0123456789abcdefghijABCDEF",
    "aws key id": "AKIAZZZZ4444YYYY8888", "aws secret": "wJalrXUtnFEMIzetaK7MDENGbPxRfiCYEXAMPLEKE",
    "bearer": "b3arer-abcdef-012345-zeta",
    "basic": "Basic" + base64.b64encode(b"ivanz:b4sicPassw0rd").decode(),
    "basic password": "b4sicPassw0rd", "web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ6In0.c2lnbmF0dXJl",
    "private key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCzeta",
    "key cut off": "MIIEowIBAAKCAQEAzetacutoff",
    "key in lines": "MIIJKQIBAAKCAgEAzetalines",
    "registry login": "r3gistryLog1n", "docker auth": base64.b64encode(b"judyz:dockerAuth55").decode(),
    "curl": "curlPassw0rd8", "option": "opt10n-Tok3n-5", "query signature": "sv2022Sig%2BAb8zeta",
    "json escaped": "jsonEsc4ped-Pw", "env file": "envFilePassw0rd-3", "yaml token": "yamlT0ken-6655",
    "cookie": "sess10n-cook1e-99", "repeated bare": "dbPass-9981-zz", "slack": "T0ZETA/B0ZETA/zZ9yY8xX7wW6",
    "evidence token": "glpat-zeta0123456789abcd", "fix password": "f1xPassw0rd-4",
}  # fmt: skip
S = SECRETS
ENCODED = base64.b64encode(f"login {S['user']} with {S['database password']}".encode()).decode()
PERCENT = quote(f"https://{S['user']}:{S['curl']}@{S['login node']}.{S['domain']}/x", safe="")

LOG = f"""\
slurmctld: error: Node {S["prefix"]} refused {S["listening"]}:6818 from {S["mac"]} and {S["ipv6"]}
slurmctld: sched: JobId=17 JobName={S["job of a log"]} UserId={S["user in a log"]}({S["uid"]})
slurmctld: update of node: Reason=look [{S["user of a reason"]}@2026-11-01T10:11:12] uid {S["uid"]}
ran: curl -u {S["user"]}:{S["curl"]} http://{S["login node"]}.{S["domain"]}/
Authorization: Bearer {S["bearer"]}
Authorization: {S["basic"].replace("Basic", "Basic ")}
the login failed with {S["basic password"]} and with {S["database password"]}
{{"msg": "{{\\"password\\":\\"{S["json escaped"]}\\"}}"}}
docker login -u {S["user"]} -p {S["registry login"]} {S["registry"]}
train --api-token {S["option"]} --x
GET https://{S["login node"]}.{S["domain"]}/a?sig={S["query signature"]}&x=1
Set-Cookie: {S["cookie"]}; Path=/
seen {ENCODED} and {PERCENT}
mail {S["mail address"]} by {S["mail server"]}
{UUID} MIG-{S["mig uuid"]} /proc/1/cgroup 0::/docker/{S["container id"]}
https://hooks.slack.com/services/{S["slack"]}
-----BEGIN RSA PRIVATE KEY-----
{S["private key"]}
-----END RSA PRIVATE KEY-----
WANDB_API_KEY={S["environment"]} AWS_SECRET_ACCESS_KEY={S["aws secret"]} {S["web token"]}
""".splitlines()

COMPOSE = f"""services:
  slurm:
    image: {S["registry"]}:5000/team/slurm:1
    hostname: {S["prefix"]}
    environment:
      DB_PASSWORD: "{S["database password"]}"
      MYSQL_ROOT_PASSWORD: '{S["quoted password"]}'
      HTTP_PROXY: http://{S["user"]}:{S["proxy password"]}@proxy.{S["domain"]}:3128
    command: [x, "--token={S["compose secret"]}"]
    volumes: ["{S["mount source"]}:{S["mount target"]}", "{S["volume"]}:/data"]
    deploy: {{device_ids: ["{UUID}"]}}
"""
SLURM = f"""# by {S["mail address"]}, ticket token {S["comment token"]}
ClusterName={S["prefix"]}
SlurmctldHost={S["prefix"]}({S["ipv4"]})
AccountingStoragePass={S["storage pass"]}
NodeName={S["prefix"]} NodeAddr={S["ipv4"]} RealMemory=1000
PartitionName=debug Nodes={S["prefix"]} Default=YES
"""
YAML = f"""prefix: {S["prefix"]}
# aws: {S["aws key id"]}
my_token: {S["yaml token"]}
apt_mirror: http://{S["mirror"]}/debian
"""

HOST = f"""-- proc/sys/kernel/hostname --
{S["node name"]}
-- etc/hosts --
127.0.0.1 localhost
{S["ipv4"]} {S["login node"]}.{S["domain"]} {S["login node"]}
-- etc/passwd --
{S["other user"]}:x:61235:61235::/srv/homes/{S["other user"]}:/bin/sh
-- etc/os-release --
ID=ubuntu
VERSION_ID="24.04"
-- proc/driver/nvidia/gpus/0000:1a:00.0/information --
Model: NVIDIA H100 80GB HBM3
GPU UUID: {UUID}
Serial Number: {S["serial"]}
-- proc/meminfo --
MemTotal: 16281600 kB
-- sys/devices/system/cpu/online --
0-7
"""
NVML = {
    "state": "present",
    "value": {"driver_version": "550.163.01", "devices": [
        {"index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": UUID, "memory_bytes": 85520809984,
         "pci_bus_id": "00000000:1A:00.0", "serial": S["serial"], "minor": 0},
    ]},
}  # fmt: skip
DOCKER = {
    "state": "present",
    "value": {"host": "unix:///var/run/docker.sock", "version": {"Version": "28.0.1"},
              "info": {"ID": "x", "Name": S["node name"], "ServerVersion": "28.0.1", "NCPU": 8,
                       "MemTotal": 1 << 34,
                       "HttpProxy": f"http://{S['user']}:{S['proxy of the engine']}@10.0.0.9:3128",
                       "Labels": [f"owner={S['other user']}"]}},
}  # fmt: skip
COMMANDS = [
    {"argv": ["docker", "--version"], "stdout": "Docker version 28.0.1, build abcdef0\n"},
    {"argv": ["docker", "compose", "version", "--short"], "code": 1,
     "stderr": f"WANDB_API_KEY={S['environment']}: {S['home']}/.docker: "
     f"{json.dumps({'auths': {S['registry']: {'auth': S['docker auth']}}})}\n"},
    {"argv": ["nvidia-smi", "-L"], "stdout": f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {UUID})\n"},
]  # fmt: skip


def _host(folder: Path) -> made.Made:
    folder.mkdir()
    about = {
        "format": 1, "system": "Linux", "release": "6.8.0-60-generic", "machine": "x86_64",
        "uid": int(S["uid"]),
        "env": {"HOME": S["home"], "USER": S["user"], "WANDB_API_KEY": S["environment"],
                "HOSTNAME": f"{S['node name']}.{S['domain']}"},
    }  # fmt: skip
    (folder / "machine.yaml").write_text(yaml.safe_dump(about))
    (folder / "root.txtar").write_text(HOST)
    (folder / "commands.yaml").write_text(yaml.safe_dump(COMMANDS))
    (folder / "nvml.json").write_text(json.dumps(NVML))
    (folder / "docker.json").write_text(json.dumps(DOCKER))
    return made.Made(folder)


def _sources(machine: made.Made) -> Sources:
    healthy = cases.observed(made.MACHINES / "workstation-rtx4090", "healthy")
    assert healthy.cluster is not None
    node = replace(healthy.cluster.nodes[0], name=S["prefix"], reason=f"ask {S['user in a log']}")
    cluster = replace(
        healthy.cluster,
        project=S["project folder"], container=f"{S['prefix']}-slurm", nodes=(node,),
        pending=(Stuck("17", S["user of the queue"], S["job name"], "it asks for too much",
                       "lost_reservation"),),
        notes=(f"{S['job name']} of {S['user of the queue']} waits", "a name in no encoding: \udcff"),
        config_sha256={"slurm.conf": digest(SLURM), "gres.conf": "ab" * 32},
    )  # fmt: skip
    container = ContainerSeen(
        f"{S['prefix']}-slurm", "running", image=f"{S['registry']}:5000/team/slurm:1",
        mounts={S["mount target"]: S["mount source"], "/data": S["volume"],
                "/config": f"{S['project folder']}/config"},
        published=(f"{S['listening']}:6817",), log=tuple(LOG),
    )  # fmt: skip
    inside = Inside(
        host_name=S["prefix"], slurm_conf=SLURM,
        node_lines=(f"NodeName={S['prefix']} NodeAddr={S['ipv4']} NodeHostName={S['node name']}",),
        errors=(f"error: {S['user in a log']} may not", "-----BEGIN EC PRIVATE KEY-----",
                S["key in lines"], "-----END EC PRIVATE KEY-----"),
        out_of_memory=(f"17 ({S['killed job']})",),
    )  # fmt: skip
    kernel = KernelLog("present", (
        f"NVRM: Xid (PCI:0000:1a:00): 13, pid=77, name={S['program']}, Graphics",
        f"usb 1-1: SerialNumber: {S['usb serial']}",
        f"Out of memory: Killed process 812 ({S['job name']}) UID:{S['uid']}",
    ))  # fmt: skip
    observed = replace(
        healthy, project=S["project folder"], cluster=cluster, container=container, inside=inside,
        files=(ProjectFile("config/slurm.conf", "custom", text=SLURM),
               ProjectFile("docker-compose.yml", "edited", text=COMPOSE)),
        disks=(Disk("engine", S["engine's disk"], 1, 2), Disk("project", S["project folder"], 1, 2)),
        kernel=kernel,
        others=(NodeSeen(S["other node"], "running", replace(inside, host_name=S["other node"])),),
    )  # fmt: skip
    settings = load(
        yaml_text=YAML.replace("my_token", "# my_token"), flags={"work": S["work folder"]}
    )
    known = made.known_on(machine, settings, observed)
    planted = Finding(
        "DSH-SL-001", "slurm", "error", "The container is stopped",
        (f"{S['job name']} of {S['user']}@{S['login node']}: {S['evidence token']}", UUID,
         f"killed: {S['killed job']}"),
        f"It is in {S['project folder']}.",
        (Fix("Set it", f"mysql --password={S['fix password']}"),),
    )  # fmt: skip
    log = recorder.capture_machine(machine, Silent())[1]
    return Sources(
        known, (*diagnose(known), planted), log, S["project folder"], settings, YAML,
        {"config/slurm.conf": SLURM, "docker-compose.yml": COMPOSE},
        {"DB_SECRET": S["env file"], "NAME": "plain"},
        (f"{S['key cut off']}", "-----END RSA PRIVATE KEY-----", *LOG, f"read {S['env file']}"),
    )  # fmt: skip


@cache
def _report(folder: Path) -> Mapping[str, str]:
    machine = _host(folder)
    return scrubbed.files(machine, _sources(machine))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return _report(tmp_path_factory.mktemp("r") / "host")


def _planted() -> str:
    """All that the report is made of, as one text."""
    return "\n".join(
        [
            HOST,
            json.dumps(NVML),
            json.dumps(DOCKER),
            json.dumps(COMMANDS),
            *LOG,
            COMPOSE,
            SLURM,
            YAML,
        ]
    )


def _forms(secret: str) -> set[str]:
    """As it is, in base64 at each of the three places that it may begin at, and with percent signs."""
    forms = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}
    for before in range(3):
        data = base64.b64encode(b"\0" * before + secret.encode()).decode()
        start = (0, 2, 3)[before]
        inner = data[start : len(data.rstrip("=")) - (2 if data.endswith("=") else 1)]
        forms |= {inner} if len(inner) >= 6 else set()
    return {form.lower() for form in forms}


def test_fifty_secrets_are_planted() -> None:
    assert len(set(SECRETS.values())) >= 50
    elsewhere = {"prefix", "job name", "killed job", "user of the queue", "program", "usb serial",
                 "project folder", "work folder", "engine's disk", "env file", "evidence token",
                 "fix password", "key cut off", "key in lines", "node name", "other node", "home",
                 "other user", "basic", "basic password"}  # fmt: skip
    for what, secret in SECRETS.items():
        assert secret in _planted() or what in elsewhere, f"{what} is not planted"


@pytest.mark.parametrize("what", SECRETS)
def test_a_secret_is_in_no_member(what: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        for form in _forms(SECRETS[what]):
            assert form not in text.lower(), f"{what} is in {name}: {form}"


@pytest.mark.parametrize(
    "word", ["zeta", "carolz", "davez", "erinz", "frankz", "gracez", "heidiz", "61234", "customer",
             "patients", "acquisition", "pa55", "passw0rd"]
)  # fmt: skip
def test_no_part_of_a_name_is_left(word: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        where = text.lower().find(word)
        assert where < 0, f"{name}: ...{text[max(0, where - 60) : where + 40]}"


def test_the_report_still_says_what_is_there(files: Mapping[str, str]) -> None:
    for name, words in {
        "machine/nvml.json": ("NVIDIA H100 80GB HBM3", "550.163.01"),
        "observed.json": ("Xid (PCI:0000:1a:00): 13", "RealMemory=1000", "it asks for too much"),
        "rendered/config/slurm.conf": ("PartitionName=debug", "RealMemory=1000"),
        "rendered/docker-compose.yml": ("DB_PASSWORD", "device_ids", "/slurm:1"),
        "log/container.log": ("slurmctld: error: Node", "JobId=17", "2026-11-01T10:11:12"),
        "settings/dshpc.yaml": ("apt_mirror: http://", "/debian"),
        "findings.json": ("The container is stopped", "dshpc.doctor/1"),
        "versions.json": ("28.0.1",),
    }.items():
        for word in words:
            assert word in files[name], (name, word)
    assert ".env" not in {name.rpartition("/")[2] for name in files}
    stored.from_json(files["observed.json"], "observed.json")
    yaml.safe_load(files["rendered/docker-compose.yml"])


def test_one_gpu_has_one_name_in_all_files(files: Mapping[str, str]) -> None:
    gpu = json.loads(files["facts.json"])["gpus"]["devices"][0]["uuid"]
    assert gpu != UUID
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu)
    for name in ("observed.json", "rendered/docker-compose.yml", "log/container.log", "findings.json",
                 "machine/nvml.json", "machine/root.txtar", "machine/commands.yaml"):  # fmt: skip
        assert gpu in files[name], name


def test_one_name_has_one_pseudonym_in_all_files(files: Mapping[str, str]) -> None:
    observed = stored.from_json(files["observed.json"], "observed.json")
    assert observed.cluster is not None
    assert observed.inside is not None
    assert observed.container is not None
    node = observed.cluster.nodes[0].name
    assert observed.inside.host_name == node
    assert f"NodeName={node} " in files["rendered/config/slurm.conf"]
    assert f"Nodes={node} " in files["rendered/config/slurm.conf"]
    assert f"hostname: {node}\n" in files["rendered/docker-compose.yml"]
    assert json.loads(files["settings/settings.json"])["texts"]["prefix"] == node
    assert observed.container.name == f"{node}-slurm"
    assert observed.cluster.pending is not None
    job = observed.cluster.pending[0]
    assert job.hold == "lost_reservation"
    assert f"{job.name} of {job.user} waits" == observed.cluster.notes[0]
    assert f"{job.name} of " in files["findings.json"]
    assert observed.project is not None
    assert observed.project == observed.cluster.project == observed.disks[1].path
    assert observed.container.mounts["/config"] == f"{observed.project}/config"
    digests = (
        observed.cluster.config_sha256 or {}
    )  # replaced like other long words, each by its own
    assert set(digests) == {"slurm.conf", "gres.conf"}
    assert len({*digests.values(), digest(SLURM), "ab" * 32}) == 4
    killed = observed.inside.out_of_memory[0]
    assert f"killed: {killed[4:-1]}" in files["findings.json"]
