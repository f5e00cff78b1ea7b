"""Slurm's REST API: a real slurmrestd, asked by HTTP as its OpenAPI description says."""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import shlex
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.integration.cluster import Cluster, as_user, command, run
from tests.integration.shown import blocks, documented

pytestmark = pytest.mark.engines("docker", "builtin")

ADA, BOB = 4101, 4102
REFUSED = "Protocol authentication error"
SOCKET = "/run/dshpc/rest/slurmrestd.socket"
# Asked from within a container, on the socket: prints the HTTP status
_BY_SOCKET = f"""
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("{SOCKET}")
connection.request("GET", sys.argv[1], headers={{"X-SLURM-USER-TOKEN": sys.argv[2]}})
print(connection.getresponse().status)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Api:
    """A client that knows what the server's own description says, and nothing else."""

    port: int
    token: str = ""
    described: Mapping[str, Any] | None = None

    def http(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {"X-SLURM-USER-TOKEN": self.token} if self.token else {}
        if body is not None:
            given["Content-Type"] = "application/json"
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {**given, **headers})  # fmt: skip
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode()

    def call(self, operation: str, body: object = None, **values: str) -> Any:
        """The operation of that id. Of Slurm's answers not all is as described: `job_resources` is null."""
        assert self.described is not None
        method, path, found = next(
            (method, path, found)
            for path, methods in self.described["paths"].items()
            for method, found in methods.items()
            if isinstance(found, dict) and found.get("operationId") == operation
        )
        if body is not None:
            schema = found["requestBody"]["content"]["application/json"]["schema"]
            jsonschema.validate(body, {**schema, "components": self.described["components"]})
        status, answer = self.http(method.upper(), path.format(**values), body)
        assert status == 200, answer
        assert not answer["errors"], answer
        return answer


def token(cluster: Cluster, uid: int, *options: str) -> str:
    argv = ("rest", "token", *options)
    done = as_user(uid, "dshpc", *argv, cwd=cluster.folder) if uid else cluster.dshpc(*argv)
    (line,) = done.good().stdout.splitlines()
    return line


@pytest.fixture
def cluster(fresh: Cluster) -> tuple[Cluster, int]:
    """Switched on in one that runs, as people do."""
    port = free_port()
    fresh.configure("--simulate", "h100:2").good()
    fresh.configure("--simulate", "h100:2", "--rest", f"127.0.0.1:{port}").good()
    return fresh, port


def as_described(cluster: Cluster, port: int, uid: int) -> Api:
    plain = Api(port, token(cluster, uid))
    status, described = plain.http("GET", "/openapi/v3")
    assert status == 200
    return Api(port, plain.token, described)


def ended(api: Api, version: str, job: int) -> Mapping[str, Any]:
    until = time.monotonic() + 60
    while True:
        (found,) = api.call(f"slurm_{version}_get_job", job_id=str(job))["jobs"]
        if not {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"} & set(found["job_state"]):
            return dict(found)
        assert time.monotonic() < until, found
        time.sleep(0.2)


def asked(work: Path, script: str) -> dict[str, Any]:
    return {
        "job": {
            "script": f"#!/bin/sh\n{script}\n",
            "name": "by-rest",
            "current_working_directory": str(work),
            "environment": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "standard_output": str(work / "by-rest.%u.log"),
            "tres_per_job": "gres/gpu:1",
        }
    }


def test_a_job_by_the_described_api(cluster: tuple[Cluster, int]) -> None:
    """Submitted, watched and cancelled; who has no token, or an expired one, gets nothing."""
    fresh, port = cluster
    status = json.loads(fresh.dshpc("status", "--json").good().stdout)
    version = status["rest"]["version"].replace(".", "")
    assert status["rest"]["address"] == f"127.0.0.1:{port}"
    assert f"http://127.0.0.1:{port}" in fresh.dshpc("status").stdout

    root = as_described(fresh, port, 0)
    job = root.call(f"slurm_{version}_post_job_submit",
                    asked(fresh.work, "id -u; echo gpu $CUDA_VISIBLE_DEVICES"))["job_id"]  # fmt: skip
    found = ended(root, version, job)
    assert found["job_state"] == ["COMPLETED"]
    assert (fresh.work / "by-rest.root.log").read_text() == "0\ngpu 0\n"
    long = root.call(f"slurm_{version}_post_job_submit", asked(fresh.work, "sleep 600"))["job_id"]
    root.call(f"slurm_{version}_delete_job", job_id=str(long))
    assert ended(root, version, long)["job_state"] == ["CANCELLED"]

    path = f"/slurm/{status['rest']['version']}/jobs"
    assert Api(port).http("GET", path)[0] == 401
    assert Api(port, root.token[:-4] + "AAAA").http("GET", path)[0] not in (200, 401)
    short = Api(port, token(fresh, 0, "--lifespan", "1s"))
    time.sleep(2.5)
    assert short.http("GET", path)[0] != 200
    inside = fresh.said("python3", "-c", _BY_SOCKET, path, root.token)
    assert inside == "200"

    # The program of the page
    shown = documented("docs/how-to/rest.md", "python3 submit.py")
    (program,) = (item.text for item in blocks(shown.document) if item.language == "python")
    (fresh.folder / "submit.py").write_text(program.replace("6820", str(port)))
    (fresh.folder / "dshpc").write_text(f'#!/bin/sh\nexec {shlex.join(command("dshpc"))} "$@"\n')
    (fresh.folder / "dshpc").chmod(0o755)
    done = run([sys.executable, "submit.py"], cwd=fresh.folder, env=fresh.env).good()
    assert tuple(done.stdout.splitlines()) == shown.lines

    # Neither root nor Slurm's user, and it holds no key
    who = fresh.said("ps", "-o", "user:20=", "-C", "slurmrestd")
    assert who.splitlines() == ["slurmrest"]

    # Killed, it comes back; stopped, doctor says so and starts it
    fresh.said("pkill", "-KILL", "-x", "slurmrestd")
    until = time.monotonic() + 30
    while _status_of(root, path) != 200:
        assert time.monotonic() < until
        time.sleep(0.2)
    fresh.said("s6-svc", "-d", "/run/dshpc/services/slurmrestd")
    assert "DSH-SL-053" in fresh.dshpc("doctor", "--json").stdout
    fresh.dshpc("doctor", "--fix", "--yes")
    until = time.monotonic() + 30
    while _status_of(root, path) != 200:
        assert time.monotonic() < until
        time.sleep(0.2)

    # A token outlives a restart of the cluster, as its key does
    fresh.dshpc("restart").good()
    assert root.http("GET", path)[0] == 200
    # Without accounting there is none to ask
    slurmdb = path.replace("/slurm/", "/slurmdb/")
    assert root.http("GET", slurmdb)[0] == 404
    assert "/slurmdb/" not in str(root.described)
    # For the container's own programs alone; off, there is no token either
    fresh.configure("--simulate", "h100:2", "--rest", "on").good()
    told = json.loads(fresh.dshpc("status", "--json").good().stdout)["rest"]
    assert (told["address"], told["socket"]) == (None, SOCKET)
    assert fresh.said("python3", "-c", _BY_SOCKET, path, token(fresh, 0)) == "200"
    assert _status_of(root, path) is None
    fresh.configure("--simulate", "h100:2", "--rest", "off").good()
    refused = fresh.dshpc("rest", "token")
    assert (refused.code, refused.stdout) == (2, "")
    assert "dshpc config set rest" in refused.stderr
    assert _status_of(root, path) is None


def test_a_token_that_is_none_is_refused_and_harms_nobody(cluster: tuple[Cluster, int]) -> None:
    """Expired, cut off, changed, signed by nobody or by another, for another user; and what is no token."""
    fresh, port = cluster
    good = token(fresh, 0, "--lifespan", "1h")
    short = token(fresh, 0, "--lifespan", "1s")
    version = json.loads(fresh.dshpc("status", "--json").good().stdout)["rest"]["version"]
    path = f"/slurm/{version}/jobs"
    running = fresh.said("pgrep", "-x", "slurmrestd|slurmctld").split()
    head, body, signature = good.split(".")
    mine = json.loads(_decoded(body))
    assert mine["sun"] == "root"
    forged = {
        "nobody's": f"{_encoded({'alg': 'none', 'typ': 'JWT'})}.{body}.",
        "nobody's, with a signature": f"{_encoded({'alg': 'none', 'typ': 'JWT'})}.{body}.{signature}",
        "another's": _signed({**mine}, b"0" * 32),
        "without a key": _signed({**mine}, b""),
        "longer": f"{head}.{_encoded({**mine, 'exp': mine['exp'] + 9999})}.{signature}",
        "without an end": f"{head}.{_encoded({'sun': 'root'})}.{signature}",
        "cut off": good[:-20],
        "without signature": f"{head}.{body}",
        "no token": "token",
        "signs": "a.b.c",
        "a lot": "A" * 6000,
    }
    time.sleep(2.5)
    assert Api(port, good).http("GET", path)[0] == 200
    for what, made_up in {"expired": short, **forged}.items():
        status, said = Api(port, made_up).http("GET", path)
        assert (status, said["jobs"]) == (511, []), (what, said)
        assert [each["error"] for each in said["errors"]] == [REFUSED], what
        submitted = Api(port, made_up).http(
            "POST", f"/slurm/{version}/job/submit", asked(fresh.work, "true")
        )
        assert submitted[0] == 511, (what, submitted)
    assert fresh.said("squeue", "-h", "-a", "-t", "all", "-n", "by-rest") == ""
    assert Api(port, good).http("GET", path)[0] == 200
    assert fresh.said("pgrep", "-x", "slurmrestd|slurmctld").split() == running
    for bad in ("0", "-5m", "5", "9999d", "x", ""):
        wrong = fresh.dshpc("rest", "token", "--lifespan", bad)
        assert (wrong.code, wrong.stdout) == (64, ""), bad
        assert "must be a time such as 30m" in wrong.stderr


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _encoded(value: Mapping[str, Any] | bytes) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signed(claims: Mapping[str, Any], key: bytes) -> str:
    text = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}"
    return f"{text}.{_encoded(hmac.digest(key, text.encode(), 'sha256'))}"


def _status_of(api: Api, path: str) -> int | None:
    try:
        return api.http("GET", path)[0]
    except (OSError, http.client.HTTPException):
        return None


@pytest.mark.engines("docker", why="the built-in engine's cluster is of one user")
def test_a_client_is_its_user_and_no_other(cluster: tuple[Cluster, int]) -> None:
    fresh, port = cluster
    fresh.work.chmod(0o777)
    ada, bob = (as_described(fresh, port, uid) for uid in (ADA, BOB))
    version = json.loads(fresh.dshpc("status", "--json").stdout)["rest"]["version"]
    name = version.replace(".", "")
    job = ada.call(f"slurm_{name}_post_job_submit", asked(fresh.work, "id -u; sleep 600"))["job_id"]
    log = fresh.work / f"by-rest.user{ADA}.log"
    until = time.monotonic() + 60
    while not log.exists() or log.read_text() != f"{ADA}\n":
        assert time.monotonic() < until
        time.sleep(0.2)
    # Neither another's job nor another's name, root's included
    _, answer = bob.http("DELETE", f"/slurm/{version}/job/{job}")
    assert [each["error"]["code"] for each in answer["status"]] == [2002]  # ESLURM_ACCESS_DENIED
    for other in ("root", "slurm", f"user{ADA}"):
        said = bob.http("GET", f"/slurm/{version}/jobs", **{"X-SLURM-USER-NAME": other})
        assert said[0] != 200, other
    assert fresh.job_state(str(job))[0] == "RUNNING"
    ada.call(f"slurm_{name}_delete_job", job_id=str(job))
    # The key is Slurm's user's alone
    for path in ("/var/lib/dshpc/key/jwt_hs256.key", "/var/lib/dshpc/key"):
        tried = as_user(BOB, "dshpc", "exec", "--", "cat", path, cwd=fresh.work)
        assert tried.code != 0, path
