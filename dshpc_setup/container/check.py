"""Is a configuration sound: its device files, a parse by slurmd, a trial slurmctld."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping

from dshpc_setup.container import config, network
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.places import Places
from dshpc_setup.container.storage import read_text
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine

_PARSE_S = 30.0  # slurmd itself waits 19 s for a device file that is missing
_TRIAL_S = 15.0
_RUNNING = "Running as primary controller"
_MOST_DEVICES = 4096


def device_error(candidate: Candidate, is_device: Callable[[str], bool]) -> DshpcError | None:
    """The first line of gres.conf whose device file is missing or is none."""
    for number, line in enumerate(candidate.texts.get("gres.conf", "").splitlines(), 1):
        for path in device_files(line):
            if is_device(path):
                continue
            what = "is no device of this container"
            return DshpcError(
                f"{candidate.where('gres.conf')}, line {number}: {path} {what}.",
                f"The line is: {line.strip()}",
                _what_to_do(candidate, "gres.conf", "Name only device files that are there."),
            )
    return None


def host_error(candidate: Candidate, host: str) -> DshpcError | None:
    """Whether slurmctld would refuse to run here: its host must bear the name that slurm.conf has."""
    names = [
        name
        for line in candidate.texts["slurm.conf"].splitlines()
        for name in re.findall(r"(?i)^\s*SlurmctldHost\s*=\s*([^\s#(]+)", line)
    ]
    if not names or host in names or host.partition(".")[0] in names:
        return None
    return DshpcError(
        f"The container's host name is {host}, but the controller's is {names[0]}.",
        f"{candidate.where('slurm.conf')} has SlurmctldHost={names[0]}.",
        (
            f"Start the container with its name: docker run --hostname {names[0]} ...",
            f"Or name the cluster after the container: docker run --env DSHPC_PREFIX={host} ...",
        ),
    )


def device_files(line: str) -> tuple[str, ...]:
    """The paths after File= or MultipleFiles= of one gres.conf line, ranges spelled out."""
    body = line.partition("#")[0]
    found: list[str] = []
    for match in re.finditer(r"(?i)(?:^|\s)(?:Multiple)?Files?\s*=\s*(\S+)", body):
        for item in _split(match[1].strip('"')):
            found += _expand(item)
    return tuple(found)


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    return [item for item in re.split(r",(?![^\[]*\])", text) if item]


def _expand(item: str) -> list[str]:
    match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)", item)
    if match is None:
        return [item]
    found = []
    for part in match[2].split(","):
        span = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if span is None:
            return [item]
        first, last = int(span[1]), int(span[2] or span[1])
        if last - first > _MOST_DEVICES:
            return [item]
        width = len(span[1]) if span[1].startswith("0") else 0
        found += [f"{match[1]}{n:0{width}d}{match[3]}" for n in range(first, last + 1)]
    return found


def parse_error(
    machine: Machine, candidate: Candidate, folder: str, node: str
) -> DshpcError | None:
    """What slurmd says to the files in `folder`."""
    result = machine.run(
        ["slurmd", "-G", "-N", node, "-f", f"{folder}/slurm.conf"], deadline_s=_PARSE_S
    )
    # slurmd goes on without a GPU that it cannot use; the node would then be refused as too small
    if result.ok and "Ignoring" not in result.text:
        return None
    return explain(result.text or f"slurmd ended with {result.code} ({result.state})", candidate)


def trial_error(machine: Machine, candidate: Candidate, places: Places) -> DshpcError | None:
    """Whether slurmctld comes up with these texts, on a spare port and with no saved state.

    It has no option to check a configuration, and under -D a reconfigure with a file that does not
    parse ends the running one.
    """
    import shutil

    folder = f"{places.run}/trial"
    port = network.spare_port()
    texts = dict(candidate.texts)
    texts["slurm.conf"] = _moved(texts["slurm.conf"], port, folder)
    config.write_set(folder, texts, places.key)
    os.makedirs(f"{folder}/state")
    os.chmod(folder, 0o755)
    found = os.stat(places.key)
    os.chown(f"{folder}/state", found.st_uid, found.st_gid)
    log = f"{folder}/log"
    pid = machine.start_daemon(["slurmctld", "-D", "-f", f"{folder}/slurm.conf"], log=log)
    try:
        up = _runs(pid, log)
    finally:
        network.end(pid)
    said = read_text(log) or ""
    shutil.rmtree(folder)
    if up:
        return None
    return explain(said or "slurmctld did not come up and gave no reason.", candidate)


def _runs(pid: int, log: str) -> bool:
    """Whether it says that it is the controller now: it listens some time before it is sure of that."""
    until = time.monotonic() + _TRIAL_S
    while time.monotonic() < until:
        if _RUNNING in (read_text(log) or ""):
            return True
        if network.reaped(pid):
            return False
        time.sleep(0.005)
    return False


def _moved(text: str, port: int, folder: str) -> str:
    """slurm.conf for the trial: nothing of it may meet the running controller."""
    own = {
        "SlurmctldPort": str(port),
        "StateSaveLocation": f"{folder}/state",
        "SlurmctldPidFile": f"{folder}/state/pid",
        "SlurmctldDebug": "info",  # below that it does not say that it runs
        "SlurmctldLogFile": None,
    }
    names = "|".join(own)
    kept = [line for line in text.splitlines() if not re.match(rf"(?i)\s*(?:{names})\s*=", line)]
    added = [f"{name}={value}" for name, value in own.items() if value is not None]
    return "\n".join([*kept, *added, ""])


def explain(said: str, candidate: Candidate) -> DshpcError:
    """Slurm's words as an error that names file, line, what is wrong and what would be right."""
    import difflib

    errors = _errors(said) or [said.strip().splitlines()[-1] if said.strip() else said]
    for name, text in candidate.texts.items():
        if not name.endswith(".conf"):
            continue
        number, line, key = _culprit(errors, text)
        if number:
            near = difflib.get_close_matches(key, _known_keys(candidate, key), 1, 0.75)
            right = f"Did you mean {near[0]}?" if near else ""
            return DshpcError(
                f"{candidate.where(name)}, line {number}: {_why(errors, key)}",
                "\n".join([f"The line is: {line.strip()}", *errors]),
                _what_to_do(candidate, name, right),
            )
    return DshpcError(
        "Slurm refuses this configuration.",
        "\n".join(errors),
        _what_to_do(candidate, next(iter(candidate.customized), "slurm.conf"), ""),
    )


def _why(errors: list[str], key: str) -> str:
    if any("unrecognized key" in text for text in errors):
        return f"Slurm knows no {key!r} there."
    return f"{errors[-1].rstrip('.')}."


def _errors(said: str) -> list[str]:
    """Its complaints, without the time and the program's name, each once."""
    found = []
    for line in said.splitlines():
        match = re.search(r"\b(?:error|fatal): (.*)", line)
        if match and not re.search(_HARMLESS, match[1]):
            found.append(match[1].strip())
    return list(dict.fromkeys(found))


# Said of sound configurations too (24.11.5)
_HARMLESS = (
    r"Could not open .* state file|_prepare_run_dir|Waiting for gres.conf file"
    r"|Configured MailProg|Job accounting information"
)


def _culprit(errors: Iterable[str], text: str) -> tuple[int, str, str]:
    """(line number, line, key) that the errors speak of; 0 where none is found."""
    lines = text.splitlines()
    for error in errors:
        match = re.search(r"unrecognized key: (\S+)", error)
        if match:
            for number, line in enumerate(lines, 1):
                body = line.partition("#")[0]
                if re.search(rf"(?i)(?:^|\s){re.escape(match[1])}\s*[+\-*/]?=", body):
                    return number, line, match[1]
        quoted = re.findall(r"[\"'(]([\w/.,:+-]{3,})[\"')]|\b([a-z_]+/[a-z_0-9]+)\b", error)
        for value in (first or second for first, second in quoted):
            for number, line in enumerate(lines, 1):
                if f"={value}" in line.partition("#")[0]:
                    return number, line, line.partition("=")[0].strip()
    return 0, "", ""


def _known_keys(candidate: Candidate, but: str) -> list[str]:
    keys = {
        word
        for text in candidate.texts.values()
        for line in text.splitlines()
        for word in re.findall(r"(\w+)\s*=", line.partition("#")[0])
    }
    return sorted((keys | set(_COMMON_KEYS)) - {but})


_COMMON_KEYS = (
    "AccountingStorageTRES AccountingStorageType AuthType AutoDetect ClusterName ConstrainCores "
    "ConstrainDevices ConstrainRAMSpace CoresPerSocket CPUs DefMemPerCPU DefMemPerGPU Epilog Feature "
    "GresTypes InactiveLimit JobSubmitPlugins KillWait MaxJobCount MaxTime MpiDefault NodeName "
    "OverSubscribe PartitionName PriorityType PrivateData ProctrackType Prolog RealMemory "
    "ReturnToService SchedulerParameters SchedulerType SelectType SelectTypeParameters "
    "SlurmctldDebug SlurmctldHost SlurmctldParameters SlurmctldPort SlurmctldTimeout SlurmdDebug "
    "SlurmdPort SlurmdSpoolDir SlurmdTimeout SlurmUser Sockets StateSaveLocation TaskPlugin "
    "ThreadsPerCore Type File Count Cores Flags Links MultipleFiles Name"
).split()


def _what_to_do(candidate: Candidate, name: str, right: str) -> tuple[str, ...]:
    steps = [right] if right else []
    if name in candidate.customized:
        steps += [
            f"Correct config/{name} in the project folder, then: dshpc restart",
            f"Or give it up, to have it written anew: rm config/{name} && configure-environment",
        ]
    elif name == "gres.conf":
        steps.append("Run `configure-environment` on the host, so that the devices are handed in.")
    else:
        steps.append(
            "This file was rendered by dsHPC setup: please report this with the text above."
        )
    return tuple(steps)


def node_name(candidate: Candidate, wanted: str) -> str:
    """The node that this container is: `wanted` where slurm.conf has it, else its only one."""
    names = [
        name
        for line in candidate.texts["slurm.conf"].splitlines()
        for name in re.findall(r"(?i)^\s*NodeName\s*=\s*([^\s#]+)", line)
        if name.upper() != "DEFAULT"
    ]
    if wanted in names or not names:
        return wanted
    if len(names) == 1 and "[" not in names[0] and "," not in names[0]:
        return str(names[0])
    raise DshpcError(
        f"{candidate.where('slurm.conf')} has no NodeName={wanted}.",
        f"It names {', '.join(names)}; this container is {wanted}.",
        _what_to_do(candidate, "slurm.conf", f"Let one NodeName line name {wanted}."),
    )


def port(texts: Mapping[str, str], key: str, default: int) -> int:
    """A port of slurm.conf; of a range the first."""
    found = re.findall(rf"(?im)^\s*{key}\s*=\s*(\d+)", texts["slurm.conf"])
    return int(found[-1]) if found else default
