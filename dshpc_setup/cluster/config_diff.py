"""`dshpc config diff`: from what is in force to `config/`, from edited files to the new text."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Literal

from dshpc_setup.apply.owned import MOUNTED, NEW, OWNABLE, short_name
from dshpc_setup.cluster.config_files import HostFile, ask_in_force, host_file, path_of
from dshpc_setup.cluster.targets import target
from dshpc_setup.errors import Exit
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm import slurm_conf

DIFF_SCHEMA = "dshpc.config-diff/1"


@dataclass(frozen=True)
class Difference:
    """A unified diff; `kind`: from what is in force to the file, or from it to the new text beside."""

    path: str
    kind: Literal["in-force", "new"]
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "kind": self.kind, "diff": self.text}


@dataclass(frozen=True)
class Differences:
    found: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return int(Exit.WARNING if self.found else Exit.OK)

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.config-diff/1` object."""
        return {
            "schema": DIFF_SCHEMA,
            "exit_code": self.exit_code,
            "differences": [item.to_json() for item in self.found],
            "notes": list(self.notes),
        }


def differences(machine: Machine, project: Project, names: tuple[str, ...] = ()) -> Differences:
    """From what is in force to `config/`, and from edited files to the new text beside them."""
    paths = tuple(path_of(name, OWNABLE, project.folder) for name in names) or OWNABLE
    now = ask_in_force(machine, target(project))
    found: list[Difference] = []
    for path in paths:
        host = host_file(project, path)
        text = now.texts.get(short_name(path)) if path in MOUNTED else None
        if text is not None:
            found += _difference(path, "in-force", _against_force(host, text, now.container))
        if host.owner == "edited" and host.new is not None:
            found += _difference(path, "new", _against_new(host))
    notes = [f"{now.why_not}: nothing is in force to compare with."] if now.why_not else []
    notes += [
        f"{path} is missing: the container writes its own from what it sees."
        for path in paths
        if short_name(path) in now.texts and host_file(project, path).text is None
    ]
    return Differences(tuple(found), tuple(notes))


def _difference(path: str, kind: Literal["in-force", "new"], text: str) -> list[Difference]:
    return [Difference(path, kind, text)] if text else []


def _against_force(host: HostFile, text: str, container: str) -> str:
    if host.text is not None and not slurm_conf.tells_tmp_disk(host.text):
        # The host does not always see the disk that the container's /tmp lies on
        text = slurm_conf.without_tmp_disk(text)
    label = f"{host.path} (in the project folder)" if host.text is not None else "/dev/null"
    in_force = f"/etc/slurm/{short_name(host.path)} (in force in {container})"
    return unified(text, host.text or "", in_force, label)


def _against_new(host: HostFile) -> str:
    labels = (f"{host.path} (edited by hand)", f"{host.path}{NEW} (the new text)")
    return unified(host.text or "", host.new or "", *labels)


def unified(old: str, new: str, old_label: str, new_label: str) -> str:
    """A unified diff; "" where the texts are the same."""
    said = []
    for line in difflib.unified_diff(_lines(old), _lines(new), old_label, new_label):
        ended = line.endswith("\n")
        said.append(line if ended else f"{line}\n\\ No newline at end of file\n")
    return "".join(said)


def _lines(text: str) -> list[str]:
    """With their ends; only a line feed ends one, as for every tool that reads these files."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + [
        line for line in text.split("\n")[-1:] if line
    ]
