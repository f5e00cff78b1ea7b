"""`dshpc detect` as people run it, where a driver, a tool, a file or the engine never answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.machine.local import LocalMachine
from tests.integration.cluster import command, wait_until
from tests.integration.stuck import Stuck, build_nvml, eight_gpus, nvml_env, scenarios

DEADLINE_S = 3.0  # on a busy machine, enough for all that answers
ENDS_S = 20.0  # what hangs does so for minutes; how late the end is: benchmarks/detect.py


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stuck]]:
    with scenarios(tmp_path_factory.mktemp("stuck")) as found:
        yield found


def detect(
    *arguments: str, env: dict[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[bytes], dict[str, Any]]:
    done = subprocess.run(
        command("dshpc", "detect", "--json", *arguments),
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return done, found


def running(word: str) -> list[str]:
    """The command lines of all processes in which the word stands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text and path.parent.name != str(os.getpid()):
            found.append(text)
    return found


@pytest.mark.parametrize(
    "name",
    ["NVML", "NVML at the fifth card", "nvidia-smi", "a pipe in a file's place", "the engine"],
)
def test_one_that_hangs_delays_nothing_else(name: str, stuck: dict[str, Stuck]) -> None:
    it = stuck[name]
    started = time.monotonic()
    done, found = detect("--deadline", str(DEADLINE_S), *it.arguments, env=it.env)
    took = time.monotonic() - started
    assert took < ENDS_S
    assert (done.returncode, done.stderr) == (3, b"")
    assert (it.probe, it.state) in {(one["probe"], one["state"]) for one in found["evidence"]}
    assert it.known(found)
    if name == "nvidia-smi":
        stub = f"{it.env['PATH'].split(':')[0]}/nvidia-smi"
        wait_until(lambda: not running(stub), "nothing is left running")


def test_cards_before_the_one_that_hangs_are_told(
    stuck: dict[str, Stuck], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in stuck["NVML at the fifth card"].env.items():
        monkeypatch.setenv(key, value)
    reply = LocalMachine().nvml(DEADLINE_S)
    assert reply.state == "timeout"
    assert [card["uuid"] for card in reply.value["devices"]] == [f"GPU-{n:08x}" for n in range(4)]


def test_eight_gpus_of_a_library(tmp_path: Path) -> None:
    build_nvml(tmp_path)
    env = nvml_env(tmp_path, tmp_path / "nvml.txt", eight_gpus())
    done, found = detect("--only", "gpus", env=env)
    assert [key for key in ("platform", "cpu", "memory", "docker") if found[key]] == []
    if found["gpus"]["devices"]:  # in a container only the cards count whose nodes are there
        assert done.returncode == 0
        assert [one["index"] for one in found["gpus"]["devices"]] == list(range(8))
        assert {one["slurm_type"] for one in found["gpus"]["devices"]} == {"h100"}
    assert ("nvml", "present") in {(one["probe"], one["state"]) for one in found["evidence"]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_while_it_waits(number: signal.Signals, stuck: dict[str, Stuck]) -> None:
    it = stuck["nvidia-smi"]
    with subprocess.Popen(
        command("dshpc", "detect", "--json"),
        env={**os.environ, **it.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        stub = f"{it.env['PATH'].split(':')[0]}/nvidia-smi"
        wait_until(lambda: bool(running(stub)), "the tool is asked")
        os.killpg(child.pid, number)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 128 + number
    assert json.loads(out)["schema"] == "dshpc.error/1"
    assert b"interrupted" in err
    wait_until(lambda: not running(stub), "nothing is left running")


def test_a_reader_that_has_gone(tmp_path: Path) -> None:
    script = '"$@" | head -c 1 >/dev/null; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", script, "sh", *command("dshpc", "detect", "--only", "platform", "--json")],
        capture_output=True,
        timeout=60,
        check=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "141")
