"""Would the jobs that run outlive a change of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dshpc_setup.container import check, jobs
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.run import Run
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.slurm import slurm_conf


def ensure(run: Run, old: Candidate, new: Candidate, node: str) -> None:
    """DshpcError where jobs that run would not outlive the change (seen with 24.11.5).

    As the node's GPUs change in number, slurmctld ends or queues again every job that has one, also on
    a GPU that stays (_find_invalid_job_gres_on_node); as its cores do, every job (valid_job_resources).
    Of a job's GPUs it knows the places in the list alone. Processes of a job know the ports that were
    in force as it began, and no others.
    """
    change = next(_gpu_changes(old, new, node), None)
    holders = jobs.holders_of_gpus(run.machine) if change else ()
    if change and holders:
        brief = f"{change[0]}, and jobs hold GPUs: {', '.join(holders)}."
        raise _jobs_run(brief, change[1], node, holders)
    change = next(_node_changes(old, new, node), None)
    running = jobs.running_jobs(run.machine) if change else ()
    if change and running:
        brief = f"{change[0]}, and jobs run: {', '.join(running)}."
        raise _jobs_run(brief, change[1], node, running)


def _gpu_changes(old: Candidate, new: Candidate, node: str) -> Iterator[tuple[str, str]]:
    """What no job that has a GPU outlives, and why."""
    was, now = check.gres_of(old, node), check.gres_of(new, node)
    if was != now:
        yield (
            f"The node's GPUs change from {was or 'none'} to {now or 'none'}",
            "Slurm would end them or queue them again, those on GPUs that stay as well.",
        )
    if _listed(old, node) != _listed(new, node):
        yield (
            "gres.conf lists the node's GPUs by other device files, or in another order",
            "Slurm knows a job's GPU by its place in that list: other jobs would get GPUs that are in "
            "use.",
        )


def _listed(candidate: Candidate, node: str) -> list[tuple[str, tuple[str, ...]]]:
    """(type, files) of each GPU, in the order of gres.conf; (AutoDetect=..., ()) where Slurm looks."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for entry in slurm_conf.entries(candidate.texts.get("gres.conf", "")):
        if not slurm_conf.applies(entry, node):
            continue
        detect = entry.values.get("autodetect", "off").lower()
        if detect != "off":
            found.append((f"AutoDetect={detect}", ()))
        if entry.values.get("name", "").lower() != "gpu":
            continue
        kind, files = entry.values.get("type", ""), check.device_files(entry.line)
        several = "multiplefiles" in entry.values  # of one GPU
        found += [(kind, files)] if several else [(kind, (file,)) for file in files]
    return found


def _node_changes(old: Candidate, new: Candidate, node: str) -> Iterator[tuple[str, str]]:
    """What no job at all outlives, and why."""
    was, now = (slurm_conf.cores(_line(item.texts, node)) for item in (old, new))
    if was != now:
        yield (
            f"The node's cores change from {was} to {now}",
            "Slurm would end them or queue them again.",
        )
    for key, default in check.PORTS.values():
        before, after = (check.port(item.texts, key, default) for item in (old, new))
        if before != after:
            yield (
                f"{key} changes from {before} to {after}",
                "Their processes would not find Slurm's daemons any more.",
            )


def _line(texts: Mapping[str, str], node: str) -> Mapping[str, str]:
    found = slurm_conf.node(texts["slurm.conf"], node)
    return found.values if found else {}


def _jobs_run(brief: str, details: str, node: str, ids: tuple[str, ...]) -> DshpcError:
    # By docker: `dshpc exec` is the caller himself, and only root may
    return DshpcError(
        brief,
        f"{details}\nWhat was in force stays so.",
        (
            Fix(
                "So that no other job begins meanwhile",
                f"dshpc exec --root -- scontrol update nodename={node} state=drain "
                "reason=dshpc:reconfigure",
            ),
            Fix(
                "Wait until they have ended, or end them",
                f"dshpc exec --root -- scancel {' '.join(ids)}",
            ),
            Fix("Then", "dshpc reconfigure", step="after"),
        ),
    )
