"""The steps of the acceptance on real GPUs, each with what it has to show."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
PREFIX = "dshpc-hardware"
_CONFIGURE_S = 1800
_COMMAND_S = 300
# By which Slurm tells a job its GPU: of NVIDIA, AMD, Intel.
_GIVEN = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
# What a container that was given a GPU has in /dev; WSL has dxg for all.
_NODES = {
    "nvidia": {"nvidiactl", "dxg", "nvhost-gpu"},
    "amd": {"kfd", "dxg"},
    "intel": {"dri", "dxg"},
}


class NotShownError(Exception):
    """A step that did not show what it has to; the text says what was seen instead."""


@dataclass(frozen=True)
class Step:
    name: str
    ok: bool
    seconds: float
    detail: str


@dataclass(frozen=True)
class Given:
    """How it is to be run: `image_file` is for Podman and the built-in engine, `keep` leaves it running."""

    simulate: str = ""
    image: str | None = None
    engine: str = "docker"
    image_file: Path | None = None
    keep: bool = False


class Acceptance:
    """One run; every step writes what it saw into `folder`."""

    def __init__(self, folder: Path, given: Given) -> None:
        self.folder, self.given = folder, given
        self.simulate, self.image = given.simulate, given.image
        self.docker = given.engine == "docker"
        self.project = folder / "project"
        self.steps: list[Step] = []
        self.gpus: list[dict[str, Any]] = []
        self.mechanism = ""

    def all_steps(self) -> int:
        """0 where every step passed, 1 where one did not, 2 where there is no GPU to show them on."""
        ways: tuple[tuple[str, Callable[[], str]], ...] = (
            ("record", self.record),
            ("configure", self.configure),
            ("passthrough", self.passthrough),
            ("a job on each GPU", self.every_gpu),
            ("every type", self.every_type),
            ("methods", self.methods),
            ("under load", self.under_load),
            ("compose patch", self.compose_patch),
            ("doctor", self.doctor),
        )
        if self.simulate:
            print(f"A rehearsal with made-up GPUs ({self.simulate}): it shows nothing of hardware.")
        try:
            self._step("detect", self.detect)
            if not self.steps[0].ok:
                print("There is no GPU here to show anything on: nothing was tested.")
                return 2
            for name, way in ways:
                self._step(name, way)
        finally:
            if not self.given.keep:
                self._step("destroy", self.destroy)
            self._write_result()
        failed = [step.name for step in self.steps if not step.ok]
        on = f"Made-up GPUs ({self.simulate})" if self.simulate else f"{len(self.gpus)} real GPU(s)"
        print(f"{on}: {'failed: ' + ', '.join(failed) if failed else 'every step passed'}.")
        return 1 if failed else 0

    # -- the steps ----------------------------------------------------------------------------

    def detect(self) -> str:
        simulate = ["--simulate", self.simulate] if self.simulate else []
        found = self._json("detect", ["./dshpc", "detect", "--json", "--explain", *simulate])
        self.gpus = found["gpus"]["devices"]
        _need(bool(self.gpus), f"no GPU: {found['gpus']['detail']}")
        whole = [gpu for gpu in self.gpus if not gpu["problems"]]
        _need(bool(whole), f"no GPU without problems: {[gpu['problems'] for gpu in self.gpus]}")
        _need(found["simulated"] == bool(self.simulate), "made-up GPUs where real ones were wanted")
        return ", ".join(str(gpu["name"] or gpu["vendor"]) for gpu in self.gpus)

    def record(self) -> str:
        done = self._json("record", ["./dshpc", "record", str(self.folder / "machine"), "--json"])
        _need(not done["differs"], f"the recording does not replay {done['differs']}")
        return f"{len(done['files'])} files"

    def configure(self) -> str:
        self.project.mkdir()
        flags = ["--yes", "--json", "--dir", str(self.project), "--prefix", PREFIX]
        flags += ["--simulate", self.simulate] if self.simulate else ["--gpu", self._vendor()]
        flags += ["--engine", self.given.engine]
        if self.given.image_file is not None:
            flags += ["--image-file", str(self.given.image_file)]
        done = self._json("configure", ["./configure-environment", *flags], _CONFIGURE_S)
        _need(done["cluster"]["ready"], f"the cluster is not ready: {done['cluster']}")
        (node,) = done["cluster"]["nodes"]
        wanted = sum(len(gpu["mig"]) or 1 for gpu in self.gpus if not gpu["problems"])
        counted = sum(int(count) for count in re.findall(r":(\d+)(?:,|$)", node["gres"] or ""))
        _need(counted == wanted, f"the node has {node['gres']}, the machine {wanted} GPUs")
        return str(node["gres"])

    def passthrough(self) -> str:
        command = ["./dshpc", "passthrough", "--json", "--dir", str(self.project)]
        command += ["--image", self.image] if self.image else []
        found = self._json("passthrough", command)
        if self.simulate:
            _need(found["simulated"], "not labelled as simulated")
            return "nothing to test: simulated"
        _need(found["works"], f"none works: {found['reason']}")
        self.mechanism = found["handover"]["mechanism"]
        rows = [f"{row['mechanism']}: {row['state']}" for row in found["attempts"]]
        return ", ".join(rows)

    def every_gpu(self) -> str:
        """As many jobs at once as there are GPUs: each has one, and no two the same."""
        count = sum(len(gpu["mig"]) or 1 for gpu in self.gpus if not gpu["problems"])
        script = f"printenv {' '.join(_GIVEN)}; sleep 2"
        argv = ["srun", f"--ntasks={count}", "--gpus-per-task=1", "--cpus-per-task=1",
                "--label", "sh", "-c", script]  # fmt: skip
        said = self._slurm("jobs", argv)
        held: dict[str, str] = {}
        for line in said.splitlines():
            task, _, gpu = line.partition(": ")
            held.setdefault(task.strip(), gpu.strip())
        _need(len(held) == count, f"{len(held)} of {count} tasks told of a GPU: {said}")
        _need(len(set(held.values())) == count, f"two tasks have the same GPU: {held}")
        if not self.simulate and self._vendor() == "nvidia":
            listing = self._slurm("nvidia-smi", ["srun", "--gres=gpu:1", "nvidia-smi", "-L"])
            known = {gpu["uuid"] for gpu in self.gpus}
            seen = set(re.findall(r"\(UUID: (GPU-[^)]+)\)", listing))
            _need(bool(seen) and seen <= known, f"nvidia-smi in a job lists {seen}")
        return f"{count} at once, no two alike"

    def methods(self) -> str:
        """Those that come along: the report names the job's GPU, and the others end well."""
        for name in ("gpu-report", "vector-add", "matmul-benchmark"):
            self._slurm(f"method-{name}", ["method", "run", name, "--gpus", "1", "--wait"])
        if self.simulate:
            return "ended well"
        told = json.loads((self.folder / "method-gpu-report.log").read_text().split("\n{", 1)[1].join(
            ("{", "")).split("\n}", 1)[0] + "\n}")  # fmt: skip
        seen = {gpu["uuid"] for gpu in (told.get(self._vendor()) or {}).get("gpus", ())}
        known = {gpu["uuid"] for gpu in self.gpus}
        _need(self._vendor() != "nvidia" or bool(seen & known), f"gpu-report names {seen}")
        return "ended well, and gpu-report names the GPU"

    def under_load(self) -> str:
        """`dshpc gpus` while a matrix product runs on the machine: use, memory and power move."""
        if self.simulate:
            return "not run: nothing is measured of simulated GPUs"
        code = (
            "import torch, time; a = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
            "until = time.time() + 15\nwhile time.time() < until: a @ a; torch.cuda.synchronize()"
        )
        before = self._json("gpus-before", ["./dshpc", "gpus", "--json"])["gpus"]
        python = shutil.which("python3") or sys.executable
        load = subprocess.Popen([python, "-c", code], stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(8)
            if load.poll() is not None:
                return f"not run: no PyTorch here: {(load.communicate()[1] or '')[-100:].strip()}"
            during = self._json("gpus-during", ["./dshpc", "gpus", "--json"])["gpus"]
        finally:
            load.kill()
            load.wait()
        told = []
        for key in ("utilization_percent", "memory_used_mib", "power_w"):
            was, now = (max(gpu[key] or 0 for gpu in gpus) for gpus in (before, during))
            _need(now > was, f"{key} did not move: {was}, then {now}")
            told.append(f"{key} {was:g} -> {now:g}")
        return ", ".join(told)

    def every_type(self) -> str:
        kinds: dict[str, int] = {}
        for gpu in self.gpus:
            if not gpu["problems"]:
                for kind in [part["profile"] for part in gpu["mig"]] or [gpu["slurm_type"]]:
                    kinds[kind] = kinds.get(kind, 0) + 1
        for kind, count in kinds.items():
            self._slurm(f"type-{kind}", ["srun", f"--gres=gpu:{kind}:{count}", "true"])
        return ", ".join(f"gpu:{kind}:{count}" for kind, count in kinds.items())

    def compose_patch(self) -> str:
        """A stranger's compose file, patched and run: its container sees the GPUs, and is undone."""
        if self.simulate:
            return "not run: simulated GPUs are not handed to other containers"
        if not self.docker:
            return "not run: a compose file of somebody else's is for Docker"
        rendered = (self.project / "docker-compose.yml").read_text()
        image = self.image or re.findall(r'^ +image: "(.+)"$', rendered, re.MULTILINE)[0]
        file = self.folder / "own" / "compose.yaml"
        file.parent.mkdir()
        before = (
            "services:\n"
            "  train:  # ours\n"
            f"    image: {image}\n"
            "    network_mode: none\n"
            '    entrypoint: ["/bin/sh", "-c"]\n'
            "    command: ['ls /dev; nvidia-smi -L || true']\n"
        )
        file.write_text(before)
        patch = ["./dshpc", "compose", "patch", str(file), "--service", "train", "--yes"]
        mechanism = ["--mechanism", self.mechanism] if self.mechanism else []
        self._run("compose-patch", [*patch, *mechanism])
        said = self._run("compose-run", [*self._compose(), "-f", str(file), "run", "--rm", "train"])
        seen, nodes = set(said.split()), _NODES.get(self._vendor(), set())
        _need(not nodes or bool(seen & nodes), f"none of {sorted(nodes)} in its /dev: {said[:300]}")
        if self._vendor() == "nvidia" and "nvhost-gpu" not in seen:
            missing = [gpu["uuid"] for gpu in self.gpus if gpu["uuid"] not in said]
            _need(not missing, f"the container of the patched file does not see {missing}")
        self._run("compose-unpatch", [*patch, "--remove"])
        _need(file.read_text() == before, "--remove did not bring the file back")
        return "seen by the container, and taken out again"

    def doctor(self) -> str:
        found = self._json(
            "doctor", ["./dshpc", "doctor", "--json", "--dir", str(self.project)], codes=(0, 1)
        )
        broken = [item["id"] for item in found["findings"] if item["state"] in ("error", "crashed")]
        _need(not broken, f"doctor finds {broken}")
        return str(found["summary"])

    def destroy(self) -> str:
        if not (self.project / ".dshpc" / "runtime.json").exists():
            return "nothing was set up"
        self._run(
            "destroy",
            ["./dshpc", "destroy", "--yes", "--stop-jobs", "--image", "--dir", str(self.project)],
        )
        return "removed"

    # -- how they are run ---------------------------------------------------------------------

    def _vendor(self) -> str:
        vendors = {str(gpu["vendor"]) for gpu in self.gpus}
        return vendors.pop() if len(vendors) == 1 else "auto"

    def _compose(self) -> list[str]:
        found = json.loads((self.folder / "detect.json").read_text())["docker"]["composes"]
        return list(found[0]["argv"])

    def _slurm(self, name: str, argv: list[str]) -> str:
        return self._run(name, ["./dshpc", *argv], env={"DSHPC_DIR": str(self.project)})

    def _json(
        self, name: str, argv: list[str], seconds: float = _COMMAND_S, codes: tuple[int, ...] = (0,)
    ) -> dict[str, Any]:
        text = self._run(name, argv, seconds, codes=codes)
        (self.folder / f"{name}.json").write_text(text)
        found = json.loads(text)
        return dict(found)

    def _run(
        self,
        name: str,
        argv: list[str],
        seconds: float = _COMMAND_S,
        *,
        codes: tuple[int, ...] = (0,),
        env: dict[str, str] | None = None,
    ) -> str:
        done = subprocess.run(
            argv, cwd=CHECKOUT, env={**os.environ, **(env or {})}, capture_output=True,
            text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        log = f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}exit code {done.returncode}\n"
        (self.folder / f"{name}.log").write_text(log)
        if done.returncode not in codes:
            raise NotShownError(
                f"exit code {done.returncode}: {(done.stderr or done.stdout)[-600:]}"
            )
        return done.stdout

    def _step(self, name: str, way: Callable[[], str]) -> None:
        started = time.monotonic()
        try:
            detail, ok = way(), True
        except (NotShownError, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            detail, ok = f"{error}", False
        step = Step(name, ok, round(time.monotonic() - started, 1), detail)
        self.steps.append(step)
        print(
            f"  {'ok' if ok else 'FAILED':<7} {name:<18} {step.seconds:6.1f} s  {detail}",
            flush=True,
        )

    def _write_result(self) -> None:
        asked = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)
        named = ("vendor", "name", "driver_version", "mig_mode", "partition_mode", "problems")
        result = {
            "real": not self.simulate and bool(self.gpus),
            "simulated": self.simulate or None,
            "commit": commit.stdout.strip() or None,
            "gpus": [{key: gpu[key] for key in named} for gpu in self.gpus],
            "mechanism": self.mechanism or None,
            "engine": self.given.engine,
            "steps": [asdict(step) for step in self.steps],
        }
        (self.folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def _need(shown: bool, otherwise: str) -> None:
    if not shown:
        raise NotShownError(otherwise)
