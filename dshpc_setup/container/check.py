"""Is a configuration sound, as far as can be seen without Slurm; the node and ports that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dshpc_setup.container.complaints import shortened, what_to_do
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.slurm_conf import Entry
from dshpc_setup.slurm_releases import SHIPPED

MOST_DEVICES = 4096  # of one line
PORTS = {
    "slurmctld": ("SlurmctldPort", SHIPPED.defaults.controller_port),
    "slurmd": ("SlurmdPort", SHIPPED.defaults.node_port),
}


def device_error(
    candidate: Candidate, is_device: Callable[[str], bool], wanted: str = ""
) -> DshpcError | None:
    """The first line of gres.conf for this node whose device file is missing or is none.

    Where the file is the user's, with the lines that we would write. `wanted` as for `node_name`.
    """
    found = missing_device(candidate, is_device, wanted)
    if found is None:
        return None
    entry, path = found
    what = "is no device of this container"
    ours = candidate.rendered.get("gres.conf", "") if candidate.customized else ""
    return DshpcError(
        shortened(f"{candidate.where('gres.conf')}, line {entry.number}: {path} {what}."),
        "\n".join([f"The line is: {shortened(entry.line)}", *_right_devices(ours)]),
        what_to_do(candidate, "gres.conf", "Name only device files that are there."),
        file=candidate.own("gres.conf"),
    )


def missing_device(
    candidate: Candidate, is_device: Callable[[str], bool], wanted: str = ""
) -> tuple[Entry, str] | None:
    """The line of gres.conf and the path; slurmd looks for no file of another node's lines."""
    try:
        node = node_name(candidate, wanted)
    except DshpcError:
        node = ""  # not known: then each line counts
    for entry in slurm_conf.entries(candidate.texts.get("gres.conf", "")):
        if node and not slurm_conf.applies(entry, node):
            continue
        for path in device_files(entry.line):
            if not is_device(path):
                return entry, path
    return None


def _right_devices(gres: str) -> list[str]:
    """What is here, as the lines that name it."""
    lines = [line for line in gres.split("\n") if device_files(line)]
    if not lines:
        return ["There is no GPU in this container."] if gres else []
    return ["Right for what is here:", *(f"  {line}" for line in lines)]


def host_error(candidate: Candidate, host: str) -> DshpcError | None:
    """Whether slurmctld would refuse to run here: its host must bear the name that slurm.conf has."""
    names = [
        name
        for line in candidate.texts["slurm.conf"].split("\n")
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
    """The paths after File= or MultipleFiles= of one gres.conf line, ranges spelled out.

    What names more than any machine has is left as it stands there.
    """
    body = line.partition("#")[0]
    found: list[str] = []
    for match in re.finditer(r"(?i)(?:^|\s)(?:Multiple)?Files?\s*=\s*(\S+)", body):
        for item in slurm_conf.items(match[1].strip('"')):
            found += slurm_conf.expand(item, MOST_DEVICES - len(found))
    return tuple(found)


def node_name(candidate: Candidate, wanted: str) -> str:
    """The node that this container is: `wanted` where slurm.conf has it, else its only one."""
    names = [
        name
        for line in candidate.texts.get("slurm.conf", "").split("\n")
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
        what_to_do(candidate, "slurm.conf", f"Let one NodeName line name {wanted}."),
        file=candidate.own("slurm.conf"),
    )


def gres_of(candidate: Candidate, node: str) -> str:
    """What the node has to hand out, as its NodeName line says it."""
    found = slurm_conf.node(candidate.texts["slurm.conf"], node)
    return found.values.get("gres", "") if found else ""


def port(texts: Mapping[str, str], key: str, default: int) -> int:
    """A port of slurm.conf; of a range the first."""
    found = re.match(r"\d{1,5}", slurm_conf.last(texts["slurm.conf"], key) or "")
    return int(found[0]) if found else default
