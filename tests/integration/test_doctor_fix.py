"""`dshpc doctor --fix` restarts a real engine, in a room of its own.

The room has no init system. A program of OpenRC's name stands for one: it ends dockerd and starts it again
with the same command line, as a service would. The engine, what it forgets and what comes back are real.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.bench import hardware
from tests.integration.bench.engines import Bench, Kind

pytest_plugins = ("tests.integration.bench.fixtures",)

HOST: list[Kind] = ["host"]
ON_HOST = pytest.mark.parametrize("kind", HOST, indirect=True)
NOT_RESTARTED = "DSH-DK-008"
RC_SERVICE = """\
#!/bin/sh
[ "$1 $2" = "docker restart" ] || exit 64
pid=$(cat /run/bench-daemon.pid)
tr '\\0' '\\n' <"/proc/$pid/cmdline" >/run/bench-argv
kill "$pid"
while [ -e "/proc/$pid" ]; do sleep 0.1; done
set --
while read -r word; do set -- "$@" "$word"; done </run/bench-argv
setsid "$@" </dev/null >/run/bench-engine.log 2>&1 &
while [ ! -e /run/bench-daemon.pid ]; do sleep 0.1; done
ln -sf bench-daemon.pid /run/docker.pid
echo restarted >>/run/bench-restarts
"""


def doctor(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench.dshpc("doctor", "--json", *arguments)
    assert done.stdout.startswith("{"), done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["exit_code"] == done.returncode, done.stderr
    return said


def state(report: dict[str, Any], identity: str) -> str:
    return str(next(item["state"] for item in report["findings"] if item["id"] == identity))


def restarts(bench: Bench) -> int:
    path = bench.outer.path("/run/bench-restarts")
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def not_restarted(bare: Bench) -> Bench:
    """The toolkit was installed while the engine ran."""
    bare.outer.path("/run/openrc").mkdir()
    bare.put("/usr/bin/rc-service", RC_SERVICE, 0o755)
    bare.outer.path("/run/docker.pid").symlink_to("bench-daemon.pid")
    hardware.add_hook(bare)
    return bare


@ON_HOST
def test_the_engine_is_restarted_and_the_finding_gone(not_restarted: Bench) -> None:
    bench = not_restarted
    gpu = ("--gpus", "all")
    assert "could not select device driver" in bench.container(*gpu).stderr
    assert state(doctor(bench), NOT_RESTARTED) in ("warn", "error")
    bench.docker(
        "run",
        "--detach",
        "--init",
        "--name",
        "runs",
        "--network",
        "none",
        bench.image,
        "sleep",
        "600",
    )

    dry = doctor(bench, "--fix", "--dry-run")
    (planned,) = (item for item in dry["repairs"] if item["repair"] == "restart-engine")
    assert planned["commands"] == ["sudo rc-service docker restart"]
    assert planned["loss"] == "1 container stops (runs), and with it no running jobs"
    nobody = doctor(bench, "--fix")
    assert (nobody["exit_code"], restarts(bench)) == (2, 0), "nobody is there to ask"

    broken = bench.outer.path("/etc/docker/daemon.json")
    good = broken.read_text()
    broken.write_text('{"debug": tru}')
    refused = doctor(bench, "--fix", "--yes")
    (failed,) = (item for item in refused["repairs"] if item["repair"] == "restart-engine")
    assert (failed["state"], restarts(bench)) == ("failed", 0), "it would not have come back"
    assert "daemon.json" in json.dumps(failed["error"])
    broken.write_text(good)

    fixed = doctor(bench, "--fix", "--yes")
    (done,) = (item for item in fixed["repairs"] if item["repair"] == "restart-engine")
    assert (done["state"], restarts(bench)) == ("done", 1), done
    (gone,) = (item for item in fixed["findings"] if item["id"] == NOT_RESTARTED)
    assert gone["gone"] is True
    assert "could not select device driver" not in bench.container(*gpu).stderr
    assert bench.docker("inspect", "--format", "{{.State.Running}}", "runs").strip() == "false"
