"""Whatever is planted in any source of a report is in no file of it, in no form.

Each secret is put into every place where somebody's text can come from; nothing tells the scrubber what
it is. What is looked for is the secret, not its words: "MRN" may stay, its number may not.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
import yaml

from dshpc_setup.bundle import archive, configs, contents, scrubbed
from dshpc_setup.bundle.sources import Sources
from dshpc_setup.diagnose import Finding, diagnose
from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import KernelLog, ProjectFile
from dshpc_setup.record import recorder
from dshpc_setup.settings import Settings, WrongSetting, load
from dshpc_setup.slurm.blocked_jobs import Stuck
from dshpc_setup.terminal.reporter import Silent
from tests.unit.bundle import made
from tests.unit.bundle.planted import SECRETS, encoded
from tests.unit.diagnose import known as cases

ALL = list(SECRETS.values())
PARTS = 6
"""Reports that they are spread over: what a report costs grows with the square of the names in it."""


def _plain(texts: Sequence[str]) -> list[str]:
    """Each as one word, as a name or a value is."""
    return [re.sub(r"[\s\"'\\]+", "-", text) for text in texts]


def _log(texts: Sequence[str]) -> tuple[str, ...]:
    lines = []
    for text in texts:
        lines += [
            f"slurmctld: error: {text}",
            f"slurmd: launching task for {text} failed: {text}: No such file or directory",
            f"ps: root 812 0.0 /usr/bin/python3 train.py --note={text} -p{text} {text}",
            f"  env {text.partition(' ')[0]}={text}",
            f'{{"msg":"{text}"}} ({text}), [{text}]; <{text}>',
            f"seen {encoded(text)} {quote(text, safe='')} {text.upper()} {text.lower()}",
        ]
    return tuple(lines)


def _conf(texts: Sequence[str]) -> str:
    plains = _plain(texts)
    lines = ["ClusterName=cluster", "SlurmctldHost=cluster"]
    for number, text in enumerate(texts):
        lines += [
            f"# {text}",
            f"NodeName=cluster RealMemory=1000 # ask {text}",
            f"NodeName=n{number} Comment={plains[number]} Features={plains[number]}",
            f"PartitionName=debug Nodes=cluster AllowAccounts={plains[number]}",
            f"Prolog=/opt/{plains[number]}/prolog.sh",
            f"SiteKey{number}={plains[number]}",
            f'Reason="{plains[number]} is down"',
        ]
    return "\n".join(lines) + "\n"


def _gres(texts: Sequence[str]) -> str:
    plains = _plain(texts)
    return "".join(f"# {text}\nName=gpu Type={plain} File=/dev/{plain}\n"
                   for text, plain in zip(texts, plains, strict=True))  # fmt: skip


def _compose(texts: Sequence[str]) -> str:
    lines = ["services:", "  slurm:", "    image: dshpc-slurm:nvidia", "    environment:"]
    for number, text in enumerate(texts):
        lines += [f"      # {text}", f"      SITE_{number}: {json.dumps(text)}"]
    lines.append("    labels:")
    lines += [f"      note.{number}: {json.dumps(text)}" for number, text in enumerate(texts)]
    lines.append("    volumes:")
    lines += [f"      - {json.dumps(f'/mnt/{text}:/data/{text}')}" for text in texts]
    lines.append("    command:")
    lines += [f"      - {json.dumps(f'--option={text}')}  # {text}" for text in texts]
    return "\n".join(lines) + "\n"


def _yaml(texts: Sequence[str]) -> str:
    lines = ["prefix: cluster"]
    for number, text in enumerate(texts):
        lines += [f"# {text}", f"note_{number}: {json.dumps(text)}"]
    lines += ["slurm_conf_extra: |", *(f"  # {text}" for text in texts)]
    return "\n".join(lines) + "\n"


def _machine(folder: Path, texts: Sequence[str]) -> made.Made:
    plains = _plain(texts)
    folder.mkdir()
    (folder / "machine.yaml").write_text(
        yaml.safe_dump(
            {"format": 1, "system": "Linux", "release": "6.8.0-60-generic", "machine": "x86_64",
             "uid": 1000, "env": {"HOME": "/root", "LD_LIBRARY_PATH": ":".join(texts)}}
        )
    )  # fmt: skip
    daemon = {
        "labels": texts, "registry-mirrors": texts, "data-root": f"/data/{plains[0]}",
        "runtimes": {plain: {"path": f"/opt/{plain}/run"} for plain in plains}, "exec-opts": texts,
    }  # fmt: skip
    released = "".join(f'NOTE_{number}="{plain}"\n' for number, plain in enumerate(plains))
    (folder / "root.txtar").write_text(
        f"-- etc/os-release --\nID=ubuntu\nVERSION_ID=24.04\n{released}"
        f"-- etc/docker/daemon.json --\n{json.dumps(daemon)}\n"
        f"-- sys/class/dmi/id/product_name --\n{' '.join(texts)}\n"
        f"-- sys/class/dmi/id/sys_vendor --\n{' '.join(texts)}\n"
        f'-- proc/driver/nvidia/params --\nRegistryDwords: "{" ".join(texts)}"\n'
        f"-- proc/cmdline --\nquiet {' '.join(f'note={plain}' for plain in plains)}\n"
        "-- proc/meminfo --\nMemTotal: 16281600 kB\n"
        "-- sys/devices/system/cpu/online --\n0-7\n"
    )
    refused = "\n".join(f"Error response from daemon: {text}: not found" for text in texts)
    (folder / "commands.yaml").write_text(
        yaml.safe_dump(
            [{"argv": ["docker", "--version"], "stdout": "Docker version 28.0.1, build abcdef0\n"},
             {"argv": ["docker", "compose", "version", "--short"], "code": 1, "stderr": refused},
             {"argv": ["nvidia-smi", "-L"], "code": 9, "stdout": refused, "stderr": refused}]
        )
    )  # fmt: skip
    info = {"ID": "x", "Name": "cluster", "ServerVersion": "28.0.1", "NCPU": 8, "MemTotal": 1 << 34,
            "OperatingSystem": " ".join(texts), "Labels": texts, "HttpProxy": texts[0], "Warnings": texts,
            "NoProxy": ",".join(texts), "SecurityOptions": texts,
            "Runtimes": {plain: {"path": plain} for plain in plains}}  # fmt: skip
    (folder / "docker.json").write_text(
        json.dumps({"state": "present", "detail": refused,
                    "value": {"host": "unix:///var/run/docker.sock", "info": info,
                              "version": {"Version": "28.0.1"}}})
    )  # fmt: skip
    return made.Made(folder)


def _sources(machine: made.Made, texts: Sequence[str], named: bool) -> Sources:
    """`named`: as names of jobs, users and programs as well, which are replaced wherever they stand."""
    plains = _plain(texts)
    healthy = cases.observed(made.MACHINES / "workstation-rtx4090", "healthy")
    assert healthy.cluster is not None
    assert healthy.container is not None
    assert healthy.inside is not None
    conf, log = _conf(texts), _log(texts)
    observed = replace(
        healthy,
        settings_wrong=(
            WrongSetting("value", "file", f"{texts[0]}:1:1", "; ".join(texts), "; ".join(texts), texts[0]),
        ),
        inside_problem=f"Error response from daemon: {texts}",
        cluster=replace(
            healthy.cluster,
            notes=tuple(texts),
            nodes=(replace(healthy.cluster.nodes[0], reason=" / ".join(texts)),),
            pending=tuple(
                Stuck("17", text if named else "root", text if named else "wrap", f"{text} is not there")
                for text in texts
            ),
        ),
        container=replace(
            healthy.container,
            log=log,
            mounts={**healthy.container.mounts, **{f"/data/{text}": f"/mnt/{text}" for text in texts}},
            devices=tuple(f"/dev/{text}" for text in texts),
            image=f"{plains[-1]}:1",
        ),
        inside=replace(
            healthy.inside,
            slurm_conf=conf,
            gres_conf=_gres(texts),
            errors=log,
            out_of_memory=tuple(f"17 ({text})" for text in texts if named),
            node_lines=tuple(f"NodeName=cluster Comment={text} Reason={text}" for text in texts),
            controller_says=" ".join(texts),
        ),
        files=(
            ProjectFile("config/slurm.conf", "custom", text=conf),
            ProjectFile("config/gres.conf", "custom", text=_gres(texts)),
            ProjectFile("docker-compose.yml", "edited", text=_compose(texts)),
            ProjectFile("dshpc.yaml", "edited", state="invalid", detail=" ".join(texts), text=_yaml(texts)),
        ),
        kernel=KernelLog("present", tuple(
            line for text in texts for line in (
                f"NVRM: Xid (PCI:0000:1a:00): 13, {'pid=77, name=' if named else ''}{text}, Graphics",
                f"nvidia: loading {text} from /lib/{text}.ko: {text}",
            )
        )),
        leftovers=tuple(f"config/{text}" for text in texts),
    )  # fmt: skip
    settings = load(flags={"slurm_conf_extra": "SchedulerParameters=defer"})
    known = made.known_on(machine, settings, observed)
    planted = Finding(
        "DSH-SL-001", "slurm", "error", "The container is stopped", tuple(texts),
        f"It is in {' '.join(texts)}.", (Fix("Set it", f"scontrol update {' '.join(texts)}"),),
    )  # fmt: skip
    return Sources(
        known, (*diagnose(known), planted), made.captured("vm-no-gpu")[1], None, settings, _yaml(texts),
        {"config/slurm.conf": conf, "config/gres.conf": _gres(texts), "docker-compose.yml": _compose(texts)},
        {}, log,
    )  # fmt: skip


@cache
def reported(named: bool, part: int) -> Mapping[str, str]:
    """What was really sent, with each `PARTS`th of all that is planted from `part` on."""
    texts = ALL[part::PARTS]
    with TemporaryDirectory() as folder:
        machine = _machine(Path(folder) / "host", texts)
    log = recorder.capture_machine(machine, Silent())[1]
    sources = replace(_sources(machine, texts, named), log=log)
    files = contents.listed(scrubbed.files(machine, sources))
    return archive.unpack(archive.pack("report", files))


NAMED = pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
EACH = pytest.mark.parametrize("part", range(PARTS))


def forms(text: str) -> set[str]:
    """As it is, in JSON, in base64 and with percent signs, in any case."""
    data = text.encode()
    return {
        form.lower()
        for form in (
            text,
            json.dumps(text, ensure_ascii=False)[1:-1],
            json.dumps(text)[1:-1],
            re.sub(r"[\s\"'\\]+", "-", text),
            base64.b64encode(data).decode(),
            base64.b64encode(data.upper()).decode().rstrip("="),
            base64.urlsafe_b64encode(data).decode().rstrip("="),
            quote(text),
            quote(text, safe=""),
            data.hex(),
        )
    }


def test_they_are_enough() -> None:
    assert len(SECRETS) >= 100
    assert min(map(len, ALL)) >= 6


@EACH
@NAMED
def test_it_is_in_no_file(part: int, named: bool) -> None:
    for name, text in reported(named, part).items():
        lower = text.lower()
        for what, secret in list(SECRETS.items())[part::PARTS]:
            for form in forms(secret):
                where = lower.find(form)
                assert where < 0, f"{what} in {name}: ...{text[max(0, where - 60) : where + 80]}"


NAMES = (
    "annegret waldhäusler waldh siobhán brádaigh wojciech brzęcz kleinschmidt friedhelm hochst annika"
    " maximiliane mustermann çağlayan öztürk jörg größe onkologie mammaca krebsregister kohorte klinikum"
    " brutus zwiebelkuchen gartenzwerg krokodil fritz zq-uni zqlab rrzq wwwproxy flexlm gruppenlaufwerk"
).split()


@EACH
@NAMED
def test_no_word_of_a_name_is_left(part: int, named: bool) -> None:
    for name, text in reported(named, part).items():
        for word in NAMES:
            where = text.lower().find(word)
            assert where < 0, f"{name}: ...{text[max(0, where - 60) : where + 40]}"


@EACH
@NAMED
def test_what_programs_wrote_around_it_is_there(part: int, named: bool) -> None:
    report = reported(named, part)
    log = report["log/container.log"]
    assert "slurmctld: error: " in log
    assert "slurmd: launching task for " in log
    assert "No such file or directory" in log
    conf = report["rendered/config/slurm.conf"]
    assert "RealMemory=1000" in conf
    assert "PartitionName=debug Nodes=" in conf
    assert "# (a comment)" in conf
    assert "Error response from daemon: " in report["machine/commands.yaml"]
    assert yaml.safe_load(report["rendered/docker-compose.yml"])["services"]["slurm"]["command"]
    assert yaml.safe_load(report["settings/dshpc.yaml"])["prefix"]


@NAMED
def test_different_names_are_still_different(named: bool) -> None:
    observed = [json.loads(reported(named, part)["observed.json"]) for part in range(PARTS)]
    reasons = [{one["why"] for one in each["cluster"]["pending"]} for each in observed]
    assert sum(map(len, reasons)) >= len(SECRETS) - 5


# Configuration files


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("# call Ada\n", "# (a comment)\n"),
        ("SlurmUser=slurm # Ada's\n", "SlurmUser=slurm # (a comment)\n"),
        ("# USER_CUSTOMIZED=true\n", "# USER_CUSTOMIZED=true\n"),
        ("# SIMULATED GPUs: made up by --simulate; no job computes on them.\n",
         "# SIMULATED GPUs: made up by --simulate; no job computes on them.\n"),
        ("NodeName=a RealMemory=7 Comment=\"so it is\" State=UNKNOWN\n",
         "NodeName=a RealMemory=7 Comment=removed State=UNKNOWN\n"),
        ("OurOwnKey=low memory=7\n", "OurOwnKey=removed memory=7\n"),
        ("Name=gpu Type=h100 File=/dev/nvidia[0-7]\n", "Name=gpu Type=h100 File=/dev/nvidia[0-7]\n"),
    ],
)  # fmt: skip
def test_what_is_kept_of_a_file_of_slurm(text: str, kept: str) -> None:
    assert configs.slurm(text) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a: b # c", "a: b # (a comment)"),
        ('a: "b # c"', 'a: "b # c"'),
        ("a: b#c", "a: b#c"),
        ("  DB_NAME: memory", "  DB_NAME: removed"),
        ('  - "DB_NAME=memory"', '  - "DB_NAME=removed"'),
        ("  - DB_NAME=memory", "  - DB_NAME=removed"),
        ('  DB_NAME: "memory"', '  DB_NAME: "removed"'),
        ("  NVIDIA_VISIBLE_DEVICES: void", "  NVIDIA_VISIBLE_DEVICES: void"),
    ],
)
def test_what_is_kept_of_a_compose_file(text: str, kept: str) -> None:
    assert configs.yaml(text) == kept


def test_a_line_of_any_length_takes_no_long_time() -> None:
    """Each piece of a line is looked at once, and not again for each of its letters."""
    for line in ("x" * 500_000, "x " * 250_000, "=" * 500_000, "#" * 500_000, '"' * 500_000):
        for told in (configs.slurm, configs.yaml):
            told(line)


def test_what_is_kept_of_the_settings_file() -> None:
    text = "prefix: lab\nour_key: memory\nslurm_conf_extra: |\n  Reason=memory\n  OurKey=memory\n"
    kept = (
        "prefix: lab\nour_key: removed\nslurm_conf_extra: |\n  Reason=removed\n  OurKey=removed\n"
    )
    assert configs.yaml(text, settings=True) == kept
    assert load(yaml_text="prefix: lab\n") != Settings()
