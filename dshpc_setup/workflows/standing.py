"""How each job of a workflow stands, of what is known of it and of those that it waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dshpc_setup.jobs import view as views
from dshpc_setup.jobs.view import View
from dshpc_setup.slurm import job_states
from dshpc_setup.workflows.model import Need
from dshpc_setup.workflows.state import Ran, State

# not_needed: it is there for the case that another one fails, which did not come
Kind = Literal["queued", "running", "good", "bad", "not_needed", "not_run"]
OVER: tuple[Kind, ...] = ("good", "bad", "not_needed", "not_run")
GOOD: tuple[Kind, ...] = ("good", "not_needed")


@dataclass(frozen=True)
class Standing:
    """One job; `words` say its state, `why` what it waits for or was ended by."""

    name: str
    kind: Kind
    words: str
    job_id: str | None = None
    state: str | None = None  # Slurm's word
    why: str | None = None
    gpus: tuple[str, ...] = ()
    on: str = ""  # the same by index: "0,2"
    seconds: float | None = None
    exit_code: int | None = None
    workspace: str | None = None
    log: str | None = None
    reused: bool = False
    requires: tuple[Need, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.kind in OVER

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(state: State, known: Mapping[str, View | None], now: float) -> list[Standing]:
    """`known`: job -> what is known of it."""
    found: dict[str, Standing] = {}
    for name, ran in state.jobs.items():
        found[name] = _one(name, ran, known.get(name), found, now)
    return list(found.values())


def _one(
    name: str, ran: Ran, seen: View | None, before: Mapping[str, Standing], now: float
) -> Standing:
    kind = _kind(ran, seen)
    why = seen.reason if seen is not None else None
    words = "not submitted"
    if seen is not None:
        words = views.outcome(seen) if seen.is_over else seen.words
    elif ran.job_id is not None:
        words = "not known"
        why = "neither the controller nor its workspace says how it ended"
    waits = [need.job for need in ran.needs if need.job in before and not before[need.job].is_over]
    if kind == "queued" and waits:
        why = f"it waits for {', '.join(waits)}"
    # One that Slurm cancels for the end of another was never to be blamed
    if ran.job_id is None or (seen is not None and seen.state == "CANCELLED"):
        unmet = list(unmet_needs(ran.needs, before))
        if unmet:
            kind = (
                "not_needed" if all(before[each.job].kind in GOOD for each in unmet) else "not_run"
            )
            words = "not needed" if kind == "not_needed" else "not run"
            why = _because(unmet, before)
    return Standing(
        name=name, kind=kind, words=words, job_id=ran.job_id,
        state=seen.state if seen else None, why=why,
        gpus=tuple(gpu.text for gpu in seen.gpus) if seen else (),
        on=views.which(seen.gpus) if seen else "",
        seconds=seen.seconds(now) if seen and kind not in ("not_run", "not_needed") else None,
        exit_code=seen.exit_code if seen and kind not in ("not_run", "not_needed") else None,
        workspace=ran.workspace, log=seen.log if seen else None, reused=ran.reused, requires=tuple(ran.needs),
    )  # fmt: skip


def _kind(ran: Ran, seen: View | None) -> Kind:
    if ran.job_id is None:
        return "not_run"
    if seen is None or seen.state == "UNKNOWN":
        return "bad"
    if seen.is_over:
        return "good" if seen.state == "COMPLETED" else "bad"
    return "queued" if seen.state == "PENDING" else "running"


def unmet_needs(needs: Sequence[Need], before: Mapping[str, Standing]) -> Iterator[Need]:
    """Those that can no longer come: as Slurm has it, a job that was not run has not ended well."""
    for need in needs:
        other = before.get(need.job)
        if other is None or not other.is_over or need.ending == "FINISHED":
            continue
        if (other.kind == "good") != (need.ending == "COMPLETED"):
            yield need


def _because(unmet: Sequence[Need], before: Mapping[str, Standing]) -> str:
    """ "prepare failed: exit code 3"."""
    return ", ".join(f"{need.job} {_how(before[need.job])}" for need in unmet)


def _how(other: Standing) -> str:
    if other.kind == "good":
        return "succeeded"
    if other.kind == "bad" and other.state == "FAILED":
        return other.words
    return f"was {other.words}"  # cancelled, not run, not needed, over its time limit


def all_good(standings: Sequence[Standing]) -> bool:
    """Whether the workflow did what it is for."""
    return all(each.kind in GOOD for each in standings)


def table(standings: Sequence[Standing]) -> list[str]:
    """For people: one line for each job."""
    rows: list[tuple[str, ...]] = [("JOB", "NAME", "STATE", "GPU", "TIME", "EXIT", "")]
    rows += [_row(each) for each in standings]
    widths = [max(len(row[at]) for row in rows) for at in range(6)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[6]])
        .rstrip()
        for row in rows
    ]  # fmt: skip


def _row(each: Standing) -> tuple[str, ...]:
    said = "from an earlier run" if each.reused else each.why or ""
    return (
        job_states.shown(each.job_id or "", 40),
        job_states.shown(each.name, 60),
        job_states.shown(each.words, 120),
        each.on,
        "" if each.seconds is None else views.duration(each.seconds),
        "" if each.exit_code is None else str(each.exit_code),
        job_states.shown(said, 300),
    )


def change(each: Standing) -> str:
    """One line of progress."""
    job = f" (job {each.job_id})" if each.job_id else ""
    said = f": {each.why}" if each.why else ""
    if each.kind == "running" and each.gpus:
        said = f" on {'; '.join(each.gpus)}"
    if each.is_over and each.seconds is not None:
        said += f", after {views.duration(each.seconds)}"
    if each.kind == "bad" and each.exit_code is not None:
        said += f"; what it printed: dshpc job logs {each.job_id}"
    return f"{each.name}{job}: {each.words}{said}"
