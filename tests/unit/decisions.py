"""What is decided about a machine or a cluster, as plain values without words: for two runs to compare.

Everything of the package is imported when it is asked for, so that it is the package of that moment.
"""

from __future__ import annotations

from dataclasses import asdict, is_dataclass, replace
from typing import Any

KNOWN = "tests.unit.diagnose.known"
# Fields that hold words for people, or how long something took
WORDS = frozenset(
    "detail reason says meaning cause title words text brief details what now done why notes problem ms "
    "source help label left_out failure resolution question to_add about".split()
)


def cases(machines: Any) -> list[str]:
    """ "NAME" and "NAME/CASE": every machine, and every cluster that was seen on one."""
    found = []
    for folder in sorted(each for each in machines.iterdir() if each.is_dir()):
        found.append(folder.name)
        found += [f"{folder.name}/{file.stem}" for file in sorted(folder.glob("observed/*.json"))]
    return found


def of_case(name: str, *, other_words: bool) -> dict[str, Any]:
    """Findings, facts, plan, repairs and exit code. `other_words`: what the cluster said for people is
    replaced, too."""
    from dshpc_setup.diagnose import diagnose, exit_code
    from dshpc_setup.repair.model import Host
    from dshpc_setup.repair.plan import plan
    from tests.unit.diagnose.known import known as known_of

    known = known_of(name)
    if other_words:
        known = replace(known, observed=_with_other_words(known.observed))
    here = Host(1000, "/home/ada", "systemd", engine_installed=True, folder="/p", container="p")
    findings = diagnose(known)
    found = plan(findings, known, here)
    return {
        "exit": int(exit_code(findings)),
        "findings": {each.id: _finding(each) for each in findings},
        "repairs": [_repair(each) for each in found.repairs],
        "not_safe": sorted(found.not_safe),
        "facts": without_words(known.facts),
        "plan": without_words(known.plan),
        "proof": without_words(known.proof),
        "cluster": _cluster(known.observed.cluster),
    }


def beside_machines() -> dict[str, Any]:
    """What is decided of jobs, of a start that failed, and of a report of the container."""
    from dshpc_setup.cluster.status import after_failure
    from dshpc_setup.container.complaints import what_to_do, while_up
    from dshpc_setup.container.config import Candidate
    from dshpc_setup.container.status import as_failure
    from dshpc_setup.engine.start_report import notes
    from dshpc_setup.errors import DshpcError, told_error
    from dshpc_setup.observed.cluster_status import ClusterStatus

    own = Candidate({"slurm.conf": ""}, {"slurm.conf": "custom"}, {})
    refused = DshpcError("xyzzy", steps=what_to_do(own, "slurm.conf", ""))
    steps = {
        name: [
            (each.step, each.does) for each in after_failure(told_error(as_failure(error)).fixes)
        ]
        for name, error in (
            ("down", refused),
            ("up", while_up(refused)),
            ("other", DshpcError("x")),
        )
    }
    phases = ("starting", "starting: slurmd", "ready", "failed", None)
    report = {"notes": ["a", "b", "c"], "note_keys": ["node n", "interrupted", None]}
    return {
        "steps": steps,
        "exits": [ClusterStatus("/p", "c", "running", phase=each).exit_code for each in phases],
        "notes": len(notes(report, ["n"])),
        "workflows": _workflows(),
    }


def _workflows() -> list[Any]:
    """How a job stands that waits for another one, by how that ended."""
    from dshpc_setup.jobs.view import View, exit_code
    from dshpc_setup.slurm.job_states import ENDED
    from dshpc_setup.workflows.model import ENDINGS, Need
    from dshpc_setup.workflows.standing import all_good, judge
    from dshpc_setup.workflows.state import Ran, State

    found: list[Any] = []
    for state in sorted(ENDED):
        for ending in ENDINGS:
            seen = {
                name: View(str(at), at, None, name, "me", of, started=1.0, ended=3.0, exit_code=3)
                for at, (name, of) in enumerate((("a", state), ("b", "CANCELLED")))
            }
            jobs = {
                "a": Ran("0", "/w/a", "f", ()),
                "b": Ran("1", "/w/b", "f", (Need("a", ending),)),
            }
            standings = judge(State("w", "f", 0.0, jobs), seen, 10.0)
            kinds = [each.kind for each in standings]
            found.append((state, ending, kinds, all_good(standings), exit_code(seen["a"])))
    return found


COMMANDS = (
    *(f"detect --json --machine {name}" for name in ("workstation-rtx4090", "mi250x", "no-such")),
    "detect --json --only gpu",
    "detect --bogus",
    *(
        f"{command} --json --machine {name}"
        for command in ("doctor", "passthrough", "configure", "configure --gpu nvidia", "gpus")
        for name in ("rtx4090-toolkit-missing", "workstation-rtx4090-no-driver", "vm-no-gpu")
    ),
    "doctor --json --only gpu --strict --machine a100x2-version-mismatch",
    "doctor --json --skip no-such-section --machine a100x2-version-mismatch",
    "explain --json DSH-NV-013",
    "explain --json CUDA out of memory",
    "explain --json nonsense of nobody",
    "configure --json --shm-size lots --machine vm-no-gpu",
    "configure --json --isolation none --machine vm-no-gpu",
    "configure --json --slurm-conf-extra GresTypes=gpu --machine vm-no-gpu",
    "config set gpu purple",
    "method validate --json --all",
    "method validate --json no-such-method",
    "job show --json x",
    "status --json",
)


def of_commands(machines: Any) -> dict[str, Any]:
    """What each command answers: its exit code, and its JSON object without what people read in it."""
    import contextlib
    import io
    import json

    from dshpc_setup import cli

    found: dict[str, Any] = {}
    for line in COMMANDS:
        words = line.split()
        argv = [
            str(machines / word) if before == "--machine" else word
            for before, word in zip(["", *words], words, strict=False)
        ]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            code = cli.run(argv, "dshpc")
        text = said.getvalue()
        found[line] = [int(code), _answer(json.loads(text)) if "--json" in argv else None]
    return found


def _answer(value: Any) -> Any:
    """As `_bare`; of texts for people, and of commands, whether and how many there are."""
    if isinstance(value, dict):
        counted = {
            key: len(each) if isinstance(each, list) else each is None
            for key, each in value.items()
            if key in ("command", "evidence", "unanswered")
        }
        kept = {key: each for key, each in value.items() if key not in WORDS | counted.keys()}
        return {key: _answer(each) for key, each in kept.items()} | counted
    return [_answer(each) for each in value] if isinstance(value, list) else value


def _finding(found: Any) -> dict[str, Any]:
    steps = [
        (each.command is None, each.automatic, each.step, each.place, each.repair, each.does)
        for each in found.fix
    ]
    return {
        "state": found.state, "section": found.section, "blocked_by": found.blocked_by,
        "caused_by": found.caused_by, "fix": steps, "evidence": len(found.evidence),
    }  # fmt: skip


def _repair(found: Any) -> list[Any]:
    return [
        found.key, found.fixes, found.after, found.commands, found.root, found.changes, found.stops,
    ]  # fmt: skip


def _cluster(found: Any) -> dict[str, Any] | None:
    return None if found is None else {"exit": found.exit_code, "ready": found.ready}


def without_words(value: Any) -> Any:
    """Values alone, in the shape that they have."""
    return _bare(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else None


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _bare(each) for key, each in value.items() if key not in WORDS}
    if isinstance(value, list | tuple):
        return [_bare(each) for each in value]
    return value


def _with_other_words(observed: Any) -> Any:
    """As if the container had written other sentences into its reports."""
    cluster = observed.cluster
    if cluster is None:
        return observed
    other = replace(
        cluster,
        drift=tuple(
            replace(each, what="xyzzy", was="xyzzy", now="xyzzy", done="xyzzy")
            for each in cluster.drift
        ),
        changes=tuple("xyzzy" for _ in cluster.changes),
        notes=tuple("xyzzy" for _ in cluster.notes),
        pending=cluster.pending and tuple(replace(each, why="xyzzy") for each in cluster.pending),
        problem=cluster.problem and "xyzzy",
        failure=_told(cluster.failure),
        kept_last_good=_told(cluster.kept_last_good),
        refused=_told(cluster.refused),
    )
    return replace(observed, cluster=other)


def _told(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """The same error in other words."""
    if error is None:
        return None
    fixes = [{**each, "text": "xyzzy"} for each in error.get("fixes") or []]
    steps = ["xyzzy" for _ in error.get("resolution") or []]
    other = {"brief": "xyzzy", "details": "xyzzy", "resolution": steps, "fixes": fixes}
    return {**error, **{key: value for key, value in other.items() if error.get(key)}}
