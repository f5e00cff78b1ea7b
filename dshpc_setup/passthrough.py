"""Can this engine hand the GPUs to a container? Found by doing it, before anything is rendered.

The mechanisms that the engine may have are tried in turn in a short-lived container of the base
image; one is taken only when the container sees as many devices as the plan needs, and may open them.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.plan import ClusterPlan

Mechanism = Literal["none", "simulated", "cdi", "device-request", "runtime", "devices", "wsl"]
DEADLINE_S = 60.0
_REMOVE_S = 20.0

# Prints which of the device nodes named to it can be opened, and the driver's own list where the engine
# brought it. The capability nodes of MIG are for reading only.
_LOOK = """
for node in "$@"; do
  [ -c "$node" ] || continue
  case $node in
  /dev/nvidia-caps/*) ( : < "$node" ) 2>/dev/null ;;
  *) ( : <> "$node" ) 2>/dev/null ;;
  esac
  if [ $? = 0 ]; then echo "open $node"; else echo "denied $node"; fi
done
for tool in nvidia-smi /usr/lib/wsl/lib/nvidia-smi; do
  if command -v $tool >/dev/null 2>&1; then echo "tool $tool"; $tool -L; break; fi
done
exit 0
"""


@dataclass(frozen=True)
class Passthrough:
    """How GPUs reach the container, or why they cannot."""

    mechanism: Mechanism
    reason: str  # one sentence: what was proven, or why there is none
    failures: tuple[str, ...] = ()  # "mechanism: the engine's words", for each that did not work
    ids: tuple[str, ...] = ()  # device request or CDI names; empty: all
    devices: tuple[str, ...] = ()  # "host:container"
    volumes: tuple[str, ...] = ()
    group_add: tuple[int, ...] = ()
    environment: Mapping[str, str] | None = None
    key: str = ""  # what the proof was made for: another key needs another proof

    @property
    def works(self) -> bool:
        return self.mechanism != "none"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Passthrough | None:
        """The remembered proof; None where it is not one of this version's."""
        try:
            fields: dict[str, Any] = {
                name: tuple(item) if isinstance(item, list) else item
                for name, item in value.items()
            }
            return Passthrough(**fields)
        except TypeError:
            return None


def proof_key(facts: HostFacts, plan: ClusterPlan, whole: bool) -> str:
    """Names everything that a proof depends on: engine, driver, devices and their settings."""
    engine = facts.engine
    parts = [
        engine.engine_id,
        engine.server_version,
        engine.host,
        engine.runtimes,
        engine.cdi_devices,
        facts.gpus.driver_version,
        facts.platform.kind,
        whole,
        [(gpu.uuid, gpu.pci_bus_id, gpu.device_files) for gpu in plan.gpus],
        [(line.uuid, line.files) for line in plan.gres],
    ]
    return hashlib.sha256(json.dumps(parts, default=list).encode()).hexdigest()[:32]


def without_test(plan: ClusterPlan, simulated_files: tuple[str, ...]) -> Passthrough | None:
    """Where nothing is to be tested: no GPU, or made-up ones, which are names of /dev/null."""
    if plan.simulated and plan.gres:
        wanted = {file for line in plan.gres for file in line.files}
        nodes = tuple(file for file in simulated_files if file in wanted or file == "/dev/kfd")
        return Passthrough(
            "simulated",
            "GPUs are simulated: their device nodes are names of /dev/null.",
            devices=tuple(f"/dev/null:{node}" for node in nodes),
        )
    if not plan.gres:
        return Passthrough("none", plan.left_out[0] if plan.left_out else "No GPU was found.")
    return None


def prove(
    machine: Machine, facts: HostFacts, plan: ClusterPlan, image: str, whole: bool
) -> Passthrough:
    """Try each mechanism that this engine may have, best first; `whole`: all GPUs, none selected.

    Never raises for a mechanism that fails: the reasons are in the result.
    """
    key = proof_key(facts, plan, whole)
    needed = needed_files(plan, facts.platform.kind)
    failures: list[str] = []
    for candidate in candidates(machine, facts, plan, whole):
        result, left = _test(machine, candidate, image, needed)
        wrong = judge(result, plan, needed)
        if wrong is None:
            reason = f"Proven by a test container: {_describe(candidate, plan)}."
            return replace(candidate, reason=reason, failures=tuple(failures), key=key)
        failures.append(f"{candidate.mechanism}: {wrong}{left}")
    if not failures:
        failures.append("this engine offers no way to hand over a GPU of this kind")
    return Passthrough("none", failures[0], tuple(failures), key=key)


def candidates(
    machine: Machine, facts: HostFacts, plan: ClusterPlan, whole: bool
) -> tuple[Passthrough, ...]:
    """The mechanisms worth a test for these GPUs on this engine, best first."""
    vendors = {gpu.vendor for gpu in plan.gpus}
    raw = _raw_devices(machine, plan)
    if vendors == {"nvidia"}:
        return _nvidia(facts, plan, whole)
    if "nvidia" in vendors:  # with another vendor's: its nodes are added to each NVIDIA mechanism
        return tuple(
            replace(item, devices=raw.devices, group_add=raw.group_add)
            for item in _nvidia(facts, plan, whole)
        )
    if facts.platform.kind == "wsl2":
        return (
            Passthrough(
                "wsl",
                "",
                devices=("/dev/dxg:/dev/dxg",),
                volumes=("/usr/lib/wsl:/usr/lib/wsl:ro",),
            ),
        )
    return (raw,)


def first_candidate(
    machine: Machine, facts: HostFacts, plan: ClusterPlan, whole: bool, reason: str
) -> Passthrough:
    """The best mechanism, untested: for a run that may not start a container."""
    return replace(candidates(machine, facts, plan, whole)[0], reason=reason)


def _nvidia(facts: HostFacts, plan: ClusterPlan, whole: bool) -> tuple[Passthrough, ...]:
    wanted = () if whole else tuple(dict.fromkeys(_nvidia_ids(plan)))
    found: list[Passthrough] = []
    names = set(facts.engine.cdi_devices)
    cdi = tuple(f"nvidia.com/gpu={item}" for item in wanted) or ("nvidia.com/gpu=all",)
    if names.issuperset(cdi):
        found.append(Passthrough("cdi", "", ids=cdi))
    found.append(Passthrough("device-request", "", ids=wanted))
    if "nvidia" in facts.engine.runtimes:
        visible = ",".join(wanted) or "all"
        found.append(Passthrough("runtime", "", environment={"NVIDIA_VISIBLE_DEVICES": visible}))
    return tuple(found)


def _nvidia_ids(plan: ClusterPlan) -> list[str]:
    """UUIDs where known: an index may mean another card after the next boot."""
    return [line.uuid or str(line.index) for line in plan.gres if line.vendor == "nvidia"]


def _raw_devices(machine: Machine, plan: ClusterPlan) -> Passthrough:
    nodes: list[str] = []
    for gpu in plan.gpus:
        if gpu.vendor == "nvidia":
            continue
        if gpu.vendor == "amd":
            nodes.append("/dev/kfd")
        nodes.extend(gpu.device_files)
    unique = tuple(dict.fromkeys(nodes))
    groups = {group for node in unique if (group := machine.group_of(node)) is not None}
    return Passthrough(
        "devices",
        "",
        devices=tuple(f"{node}:{node}" for node in unique),
        group_add=tuple(sorted(groups - {0})),
    )


def docker_flags(candidate: Passthrough) -> list[str]:
    """The options of `docker run` that stand for this mechanism."""
    flags: list[str] = []
    if candidate.mechanism == "cdi":
        flags += [flag for name in candidate.ids for flag in ("--device", name)]
    elif candidate.mechanism == "device-request":
        # the inner quotes keep several ids one field of the CSV that --gpus takes
        ids = ",".join(candidate.ids)
        flags += ["--gpus", f'"device={ids}"' if ids else "all"]
    elif candidate.mechanism == "runtime":
        flags += ["--runtime", "nvidia"]
    for device in candidate.devices:
        flags += ["--device", device]
    for volume in candidate.volumes:
        flags += ["--volume", volume]
    for group in candidate.group_add:
        flags += ["--group-add", str(group)]
    for name, value in (candidate.environment or {}).items():
        flags += ["--env", f"{name}={value}"]
    return flags


def _test(
    machine: Machine, candidate: Passthrough, image: str, needed: tuple[str, ...]
) -> tuple[CommandResult, str]:
    """How the container ended, and a word where it could not be removed."""
    name = f"dshpc-passthrough-{secrets.token_hex(4)}"
    argv = ["docker", "run", "--rm", "--name", name, "--network", "none"]
    argv += ["--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility", "--label", "org.dshpc.test=1"]
    argv += [*docker_flags(candidate), "--entrypoint", "/bin/sh", image, "-c", _LOOK, "sh", *needed]
    left = ""
    result: CommandResult | None = None
    try:
        result = machine.run(argv, deadline_s=DEADLINE_S)
    finally:  # Ctrl-C and a deadline end the client, not the container
        if result is None or not result.ok:
            left = _remove(machine, name)
    return result, left


def _remove(machine: Machine, name: str) -> str:
    gone = machine.run(["docker", "rm", "--force", name], deadline_s=_REMOVE_S)
    if gone.ok or gone.state == "absent" or "no such container" in gone.text.lower():
        return ""
    return f" (the test container is still there; remove it: docker rm -f {name})"


def needed_files(plan: ClusterPlan, platform: str) -> tuple[str, ...]:
    """The device nodes that the container must be able to open, for all that the plan hands out.

    WSL2 has one node for all its GPUs; an AMD GPU computes through /dev/kfd as well as its own.
    """
    if platform == "wsl2":
        return ("/dev/dxg",)
    common = ["/dev/kfd"] if "amd" in {line.vendor for line in plan.gres} else []
    return tuple(dict.fromkeys(common + [file for line in plan.gres for file in line.files]))


def judge(result: CommandResult, plan: ClusterPlan, needed: tuple[str, ...]) -> str | None:
    """None where the container may open all of `needed`; else what is wrong, in one sentence."""
    if result.state == "timeout":
        return f"the test container did not end within {DEADLINE_S:.0f} s"
    if not result.ok:
        return explain(result.text)
    lines = result.stdout.splitlines()
    opened = {line.split(" ", 1)[1] for line in lines if line.startswith("open ")}
    denied = {line.split(" ", 1)[1] for line in lines if line.startswith("denied ")}
    short = [node for node in needed if node not in opened]
    refused = [node for node in short if node in denied]
    if refused:
        return f"the container may not open {', '.join(refused)}"
    if short:
        count = f"{len(needed) - len(short)} of {len(needed)} GPU device nodes"
        return f"the container sees {count}: there is no {', '.join(short)}"
    if (
        "/dev/dxg" not in needed
        and "nvidia" in {line.vendor for line in plan.gres}
        and any(line.startswith("tool ") for line in lines)
    ):
        return _same_uuids(result.stdout, plan)
    return None


def _same_uuids(listing: str, plan: ClusterPlan) -> str | None:
    seen = set(re.findall(r"\(UUID: ([^)\s]+)\)", listing))
    wanted = {line.uuid for line in plan.gres if line.vendor == "nvidia" and line.uuid}
    if not seen:
        words = listing.split("tool ", 1)[-1].strip().splitlines()
        return f"nvidia-smi in the container lists no GPU: {words[-1] if words else 'no word'}"
    missing = wanted - seen
    return f"the container does not see {', '.join(sorted(missing))}" if missing else None


_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"could not select device driver",
        "Docker has no NVIDIA support: the NVIDIA Container Toolkit is not installed, or Docker was "
        "not restarted since (install nvidia-container-toolkit, then: sudo nvidia-ctk runtime "
        "configure --runtime=docker && sudo systemctl restart docker)",
    ),
    (
        r"unresolvable CDI devices",
        "the CDI specification does not list these GPUs (regenerate it: "
        "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml)",
    ),
    (
        r"unknown (?:or invalid runtime name|runtime specified)",
        "the runtime nvidia is not registered with Docker (sudo "
        "nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker)",
    ),
    (
        r"driver/library version mismatch",
        "the NVIDIA driver was updated and the old one is still loaded: reboot",
    ),
    (
        r"libnvidia-ml\.so\.1: cannot open",
        "the NVIDIA driver's libraries are missing on this machine",
    ),
    (
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed",
        "rootless Docker may not set up device access: use CDI",
    ),
    (r"no adapters were found", "WSL sees no GPU: update the Windows driver, then wsl --update"),
    (r"unsatisfied condition: cuda", "the image needs a newer CUDA than the driver offers"),
)


def explain(text: str) -> str:
    """The engine's error text with its known cause in front; an unknown text is shown whole."""
    raw = " ".join(text.split()) or "the container failed without a word"
    for pattern, cause in _CAUSES:
        if re.search(pattern, text, re.I):
            return f"{cause}. Docker said: {raw}"
    return raw


def _describe(candidate: Passthrough, plan: ClusterPlan) -> str:
    ways = {
        "cdi": "CDI",
        "device-request": "device request (--gpus)",
        "runtime": "the nvidia runtime",
        "devices": "device nodes",
        "wsl": "/dev/dxg",
    }
    return f"{len(plan.gpus)} GPU(s) by {ways.get(candidate.mechanism, candidate.mechanism)}"
