"""Clusters that were set up in a folder under another prefix: removed or kept, by a question."""

from __future__ import annotations

from collections.abc import Iterator

from dshpc_setup.cluster import neighbours, stopping
from dshpc_setup.cluster.destroy import removed
from dshpc_setup.cluster.targets import target
from dshpc_setup.engine.containers import inspect
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.terminal.reporter import Reporter

KEPT = f"{OWN}/kept.json"  # those that somebody wanted kept


def settle(
    machine: Machine, project: Project, reporter: Reporter, *, remember: bool
) -> Iterator[str]:
    """Ask about each, and tell in a sentence what became of it; the folder's lock is held.

    `--yes` keeps them: their queue and homes are lost with them. `remember`: there was somebody to answer,
    who is not asked again.
    """
    cluster = target(project)
    kept = project.read_note(KEPT).get("prefixes")
    wanted = list(map(str, kept)) if isinstance(kept, list) else []
    for prefix in neighbours.of_folder(machine, str(project.folder), cluster.prefix):
        if prefix in wanted:
            continue
        question = (
            f"The cluster {prefix} was set up in this folder before, with the same work folder. Remove it, "
            "with its job queue, users, their homes (what jobs left in $HOME) and key?"
            + stopping.for_good(machine, inspect(machine, cluster.named(prefix).container))
        )
        if reporter.ask(question, by_yes=False):
            gone = removed(machine, cluster.named(prefix), reporter)
            yield f"Removed: {', '.join(gone.removed)}."
            yield from (f"Not removed: {text}" for text in gone.left)
            continue
        if remember:
            wanted.append(prefix)
            project.write_json(KEPT, {"prefixes": wanted})
        yield (
            f"The cluster {prefix}, set up in this folder before, is kept, with the same work folder. Remove "
            f"it with all that is its own: dshpc destroy --prefix {prefix}"
        )
