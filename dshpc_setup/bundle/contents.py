"""What is in a report: a sentence for each file, and what is done with one that is too large."""

from __future__ import annotations

from collections.abc import Mapping

from dshpc_setup.terminal.amounts import size

NAME = "CONTENTS.txt"
MOST_BYTES = 256 << 10
_HEAD = """\
A report of dsHPC setup for a bug tracker.

It keeps words that programs write, versions, sizes and PCI addresses. All else was replaced, the same
everywhere by the same: names, addresses, serial numbers and UUIDs by others, other words by word1,
other numbers by number1; comments and passwords were taken out. Look through it before you send it.

To see what dshpc doctor says of it: dshpc doctor --machine FILE.tar.gz

"""

_SENTENCES = {
    "facts.json": "What the machine has, as dshpc detect --json tells it.",
    "findings.json": "What dshpc doctor found.",
    "observed.json": "What dshpc doctor saw of the cluster, its container, its files and the disks.",
    "proof.json": "How the last test-run of GPUs in a container went.",
    "versions.json": "Versions of dshpc, Python, the engine, compose and Slurm.",
    "log/container.log": "The last lines that the cluster's container wrote.",
    "settings/dshpc.yaml": "The settings file of the project.",
    "settings/settings.json": "The settings in force, and where each came from.",
    "machine/machine.yaml": "System, variables and programs of the machine.",
    "machine/root.txtar": "Files of /proc, /sys, /dev and /etc that tell of the hardware.",
    "machine/commands.yaml": "What the vendors' and Docker's programs printed.",
    "machine/nvml.json": "What NVIDIA's library says of the GPUs.",
    "machine/nvml-readings.json": "What NVIDIA's library measures.",
    "machine/amdsmi.json": "What AMD's library says of the GPUs.",
    "machine/docker.json": "What the engine says of itself.",
}


def sentence(name: str) -> str:
    """What the file is."""
    if name.startswith("rendered/"):
        return f"{name.removeprefix('rendered/')} of the project folder."
    return _SENTENCES[name]


def listed(files: Mapping[str, str]) -> dict[str, str]:
    """The files with the list of them, which comes first; the others are sorted."""
    names = sorted(files)
    width = max(map(len, names))
    sizes = {name: size(len(files[name].encode())) for name in names}
    broad = max(map(len, sizes.values()))
    lines = (f"{name:<{width}}  {sizes[name]:>{broad}}  {sentence(name)}\n" for name in names)
    return {NAME: f"{_HEAD}{''.join(lines)}", **{name: files[name] for name in names}}


def taken_out(files: Mapping[str, str]) -> list[str]:
    """What the list names, and is not there any more."""
    names = (line.partition(" ")[0] for line in files.get(NAME, "").splitlines())
    return [name for name in names if name in _SENTENCES and name not in files]


def cut(text: str, *, end: bool = False) -> str:
    """The text, or of a large one its beginning (with `end` its end) and a mark that says so."""
    data = text.encode()
    if len(data) <= MOST_BYTES:
        return text
    kept = data[-MOST_BYTES:] if end else data[:MOST_BYTES]
    mark = f"[here {len(data) - MOST_BYTES} of {len(data)} bytes were left out of the report]"
    plain = kept.decode("utf-8", "ignore")
    return f"{mark}\n{plain}" if end else f"{plain}\n{mark}\n"
