"""Readers of JSON and YAML that users, jobs, containers and other programs write.

Each is given a text and ends with a value, or with the errors that its callers expect. What it makes is
printed where people see it, and has to be printable.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import IO

from dshpc_setup import settings
from dshpc_setup.builtin_client.failing import ClientError
from dshpc_setup.bundle import replay
from dshpc_setup.checkup import inside_answer
from dshpc_setup.cli import job_request
from dshpc_setup.cluster import gpu_jobs, key, reconfigure
from dshpc_setup.cluster import status as cluster_status
from dshpc_setup.compose_patch import document as compose_document
from dshpc_setup.container import key_set
from dshpc_setup.documents import foreign, json_text, yaml_nodes
from dshpc_setup.engine import images, start_report
from dshpc_setup.environment import declaration
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import (
    allocated_gpus,
    availability,
    launch,
    offer,
    records,
    submit,
    table,
    view,
)
from dshpc_setup.observed import stored
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.observed.model import Observed
from dshpc_setup.oci import reading
from dshpc_setup.oci.model import ImageError
from dshpc_setup.podman_client import about, service
from dshpc_setup.probes import engine_files
from dshpc_setup.render import gpu_part
from dshpc_setup.repair import context
from dshpc_setup.slurm import holders, job_states
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import harmless
from dshpc_setup.workflows import document as workflow_document
from dshpc_setup.workflows import request_building
from dshpc_setup.workflows import state as workflow_state
from tests.fuzz import mutate


@dataclass(frozen=True)
class Reader:
    """`read` may raise what is in `refuses`; lines that it returns are shown to people."""

    name: str
    read: Callable[[str], Iterable[str] | None]
    sample: str
    refuses: tuple[type[Exception], ...] = ()


def _quiet(reader: Callable[[str], object]) -> Callable[[str], None]:
    def read(text: str) -> None:
        reader(text)

    return read


def _status(text: str) -> list[str]:
    report = start_report.parse(text)
    told = ClusterStatus("/p", "c", "running")
    told = replace(told, **cluster_status.from_report(report, None))
    json.dumps(told.to_json())
    return as_called("\n".join(cluster_status.lines(told))).split("\n")


def _jobs(text: str) -> list[str]:
    places = allocated_gpus.Places({})
    views = [view.of_known(job, None, places) for job in job_states.parse(text)]
    json.dumps([each.to_json(0.0) for each in views])
    for each in views:
        job_states.of(job_states.JobId(each.number), job_states.parse(text))
    return table.table(view.together(views), 0.0).split("\n")


def _record(text: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="dshpc-fuzz-") as folder:
        own = Path(folder, "jobs", str(os.getuid()), "job-1", ".job")
        own.mkdir(parents=True)
        for name in ("job.json", "result.json", "request.json"):
            (own / name).write_text(text, errors="replace")
        record = records.of_folder(folder, str(own.parent), whole=True)
        if record is None:
            return []
        each = view.of_record(record, None, allocated_gpus.Places({}))
        json.dumps([each.to_json(0.0), dict(record.request)], allow_nan=False)
        record.without_result()
        return table.table([each], 0.0).split("\n")


def _ran(text: str) -> None:
    with tempfile.TemporaryDirectory(prefix="dshpc-fuzz-") as folder:
        path = Path(workflow_state.path(folder, "w"))
        path.parent.mkdir(parents=True)
        path.write_text(text, errors="replace")
        workflow_state.read(folder, "w")


def _gpus_of_compose(text: str) -> None:
    document = gpu_part.parsed(text.encode(errors="replace"))
    if isinstance(document, dict):
        gpu_part.words(document)


def _launched(text: str) -> None:
    launch.words(foreign.value(text), {})


def _podman(text: str) -> None:
    about.as_docker_says(about.parse(text), "6.1", "podman")


def _for_podman(text: str) -> None:
    service.wanted(text, Path("/f"), "p", {}, service.Here(True, uids=(5, 65537), gids=(5, 65537)))


_START = {
    "schema": "dshpc.start/1", "phase": "ready", "ready": True, "container_began": "7",
    "failure": {"brief": "a", "details": "b\nc", "resolution": ["d"], "exit_code": 4},
    "kept_last_good": {"brief": "a", "details": "b", "resolution": ["d"]},
    "simulated": "h100:2", "image_gpu_type": "nvidia", "changes": ["a"], "notes": ["b"],
    "drift": [{"what": "GPUs", "was": "1", "is": "2", "done": "x"}],
    "customized": {"slurm.conf": "custom"}, "config_sha256": {"slurm.conf": "00"},
    "reconfigured": "2026-01-01T00:00:00.123Z",
}  # fmt: skip
_SQUEUE = {"jobs": [
    {"job_id": 7, "name": "train", "user_name": "me", "job_state": ["RUNNING"], "nodes": "n",
     "gres_detail": ["gpu:h100:2(IDX:0-1)"], "tres_per_job": "gres/gpu:2", "partition": "debug",
     "array_job_id": {"set": True, "infinite": False, "number": 7},
     "array_task_id": {"set": True, "infinite": False, "number": 2}, "array_task_string": "3-9%2",
     "exit_code": {"return_code": {"set": True, "number": 1}, "signal": {"id": {"set": True, "number": 9}}},
     "start_time": {"set": True, "number": 1795406950}, "end_time": {"set": True, "number": 1795406960},
     "current_working_directory": "/w", "standard_output": "/w/%j.out", "restart_cnt": 1,
     "dependency": "afterok:3", "het_job_id": {"set": True, "number": 0}},
    {"job_id": 8, "array_task_string": "0-1000:2", "job_state": "PENDING", "state_reason": "Priority"},
]}  # fmt: skip
_REQUEST = {
    "schema": "dshpc.job-request/1", "kind": "method", "name": "x", "argv": ["a", "{params}"],
    "work": "/w", "resources": {}, "parameters": [{"a": 1}, {"a": 2}], "is_array": True,
    "inputs": [], "targets": [["0"]], "requires": {}, "cwd": None, "utc_offset_s": 0,
}  # fmt: skip
_OFFER = {
    "schema": "dshpc.offer/1", "node": "n", "cpus": 8, "memory_mib": 1000, "aliases": {"h": ["h100"]},
    "gpus": [{"index": 0, "uuid": "GPU-1", "slurm_type": "h100", "model": "h100", "name": "H100",
              "vendor": "nvidia", "memory_mib": 81559, "compute": "9.0"}],
    "partitions": [["debug", "UNLIMITED"]],
}  # fmt: skip
_JOB = {
    "schema": "dshpc.job/1", "job_id": 17, "name": "train", "kind": "method", "tasks": 5,
    "sbatch": ["sbatch", "x"], "exit_code": 3, "signal": "SIGKILL", "max_rss_mib": 5,
    "started": 1.5e9, "ended": 1.6e9, "out_of_memory": "gpu", "out_of_memory_line": "CUDA",
    "gpus": {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "SLURM_JOB_GPUS": "0,2"}, "parameters": [{"a": 1}],
}  # fmt: skip
_RAN = {
    "schema": workflow_state.SCHEMA, "name": "w", "file": "/w.yaml", "submitted": 7.0,
    "jobs": {"a": {"job_id": "7", "workspace": "/w", "fingerprint": "f", "reused": False,
                   "needs": [{"job": "b", "ending": "COMPLETED"}]}},
}  # fmt: skip
_WORKFLOW = {
    "schema": request_building.SCHEMA,
    "verb": "status",
    "name": "w",
    "work": "/w",
    "jobs": [_REQUEST],
}
_FACTS = {"gpus": {"state": "present", "devices": [
    {"index": 0, "vendor": "nvidia", "name": "H100", "uuid": "GPU-1", "pci_bus_id": "0000:00:00.0",
     "memory_mib": 5, "slurm_type": "h100"}]}}  # fmt: skip
_IMAGE = {"Id": "sha256:1", "Architecture": "amd64", "Size": 5,
          "Config": {"Labels": {"a": "b"}, "Env": ["A=b"]}}  # fmt: skip
_KEYS = {"keys": [{"alg": "HS256", "kty": "oct", "kid": "a", "k": "eA" * 22, "use": "default"},
                  {"alg": "HS256", "kty": "oct", "kid": "b", "k": "eA" * 22, "exp": 7}]}  # fmt: skip
_ERROR = {"schema": "dshpc.error/1", "error": {"brief": "a", "details": "b", "resolution": ["c"],
                                               "exit_code": 3}}  # fmt: skip
_ROTATED = {"key": "a", "former_until": "2026-01-01T00:00:00Z", "ms": 5.0, "waiting": ["7"]}
_DAEMON = {"runtimes": {"nvidia": {"path": "x"}}, "features": {"cdi": True, "x": False}}
_METHOD = {
    "name": "x", "version": "1.0", "description": "d", "command": ["python3", "x.py"],
    "resources": {"gpus": 1}, "parameters": {"n": {"type": "integer", "default": 5}},
}  # fmt: skip
_YAML = """\
container: lab
simulate: h100:2
slurm_conf_extra: |
  MaxArraySize=5
jobs:
  a: {method: x, parameters: &p {n: 1}}
  b: {command: [echo, "1"], needs: [a], parameters: *p}
services:
  slurm: {image: x, deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all}]}}}}
"""
_OBSERVED = json.dumps(stored.to_json(Observed()))
_PODMAN = {
    "host": {"cgroupControllers": ["pids"], "cgroupManager": "systemd", "cgroupVersion": "v2", "cpus": 2,
             "idMappings": {"uidmap": [{"size": 65536}], "gidmap": None}, "logDriver": "journald",
             "ociRuntime": {"name": "crun"}, "security": {"rootless": True}, "serviceIsRemote": False},
    "store": {"graphDriverName": "overlay", "graphRoot": "/x"}, "version": {"Version": "5.4.2"},
}  # fmt: skip
_USAGE = (ValueError,)
_SAID = (DshpcError,)


class _Layout:
    """An image whose parts are all the same text."""

    def __init__(self, text: str) -> None:
        self._text = text.encode(errors="replace")

    def has(self, name: str) -> bool:
        return name == "index.json"

    def size(self, name: str) -> int:
        return len(self._text)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        yield io.BytesIO(self._text)


_IMAGE = {
    "schemaVersion": 2,
    "os": "linux",
    "architecture": "amd64",
    "config": {"digest": f"sha256:{'0' * 64}", "Env": ["A=b"], "Cmd": ["sh"], "WorkingDir": "/"},
    "layers": [{"digest": f"sha256:{'1' * 64}", "mediaType": "tar"}],
    "rootfs": {"diff_ids": [f"sha256:{'2' * 64}"]},
}

READERS = (
    Reader(
        "an image",
        _quiet(lambda text: reading.image(_Layout(text), "x86_64")),
        json.dumps(_IMAGE),
        (ImageError,),
    ),
    Reader("a workflow's request", _quiet(request_building.from_json), json.dumps(_WORKFLOW), _SAID),
    Reader("a start report", _status, json.dumps(_START)),
    Reader("squeue's jobs", _jobs, json.dumps(_SQUEUE), _USAGE),
    Reader(
        "free GPUs of squeue",
        _quiet(lambda text: availability.of(holders.parse(text), ("h100",) * 2)),
        json.dumps(_SQUEUE),
        _USAGE,
    ),
    Reader(
        "squeue's GPUs",
        _quiet(lambda text: gpu_jobs.jobs_of(holders.parse(text), "n")),
        json.dumps(_SQUEUE),
        _USAGE,
    ),
    Reader("a job's request", _quiet(submit._request), json.dumps(_REQUEST), _SAID),
    Reader("an offer", _quiet(lambda text: offer.from_json(foreign.value(text))), json.dumps(_OFFER), _USAGE),
    Reader("what a job runs", _launched, json.dumps(_REQUEST),
           (ValueError, LookupError, TypeError, AttributeError)),
    Reader("a workspace", _record, json.dumps(_JOB)),
    Reader("a workflow's run", _ran, json.dumps(_RAN)),
    Reader("facts", _quiet(gpu_jobs.parse_facts), json.dumps(_FACTS)),
    Reader("an image", _quiet(images._image), json.dumps(_IMAGE), _SAID),
    Reader("a key set", _quiet(lambda text: key_set.parse(text.encode(errors="replace"))), json.dumps(_KEYS),
           _USAGE),
    Reader("a rotated key", _quiet(lambda text: key._parsed(text, "c")), json.dumps(_ROTATED), _SAID),
    Reader("an answer", _quiet(job_request._answer), json.dumps(_ERROR), _SAID),
    Reader("the settings of a container", _quiet(lambda text: reconfigure.differing(text, {})), '["A=b"]'),
    Reader("what was seen inside", _quiet(inside_answer.parse_inside),
           json.dumps({"wheel_version": "1", "cpus": 5, "files": []})),
    Reader("a report's observed.json", _quiet(lambda text: stored.from_json(text, "x")), _OBSERVED, _SAID),
    Reader("a report's facts.json", _quiet(lambda text: replay._object(text, "x", "s")), '{"schema": "s"}',
           _SAID),
    Reader("daemon.json's settings", _quiet(engine_files.parse_settings), json.dumps(_DAEMON)),
    Reader("daemon.json's features", _quiet(context.other_features), json.dumps(_DAEMON)),
    Reader("a method", _quiet(json_text.parse), json.dumps(_METHOD)),
    Reader("a workflow's file", _quiet(workflow_document.parse), _YAML),
    Reader("dshpc.yaml", _quiet(lambda text: settings.load(yaml_text=text)), _YAML, _SAID),
    Reader("a compose file", _quiet(lambda text: compose_document.Document(text, "f")), _YAML, _SAID),
    Reader("a compose file's GPUs", _gpus_of_compose, _YAML),
    Reader("what Podman says of itself", _podman, json.dumps(_PODMAN), _USAGE),
    Reader("a compose file for Podman", _quiet(_for_podman), _YAML, (ClientError,)),
    Reader("plain YAML", _quiet(yaml_nodes.load), _YAML, (yaml_nodes.YamlError,)),
    Reader("packages", _quiet(lambda text: declaration.requirements(text.encode(errors="replace"))),
           "numpy==1.0\ntorch>=2 # x\n"),
)  # fmt: skip
_MOST_LETTERS = 1 << 15  # of YAML a reader of events takes a second for a mebibyte
_SAMPLES = tuple(reader.sample for reader in READERS)


def check(random: Random) -> str:
    """A reader, given a damaged text: its name. AssertionError says what went wrong."""
    reader = random.choice(READERS)
    try:
        shown = reader.read(_damaged(random, reader.sample)) or ()
    except reader.refuses as error:
        assert not isinstance(error, RecursionError), reader.name
        return reader.name
    for line in shown:
        assert line == harmless(line), (reader.name, line)
    return reader.name


def _damaged(random: Random, sample: str) -> str:
    """Bytes that are others, or, of JSON, values that are others: those get past the parser."""
    if random.random() < 0.5:
        try:
            return json.dumps(mutate.value(random, json.loads(sample)))
        except ValueError:
            pass
    return mutate.text(random, sample, _SAMPLES)[:_MOST_LETTERS]
