"""Is what a cluster did what its plan promises? Pure: an outcome in, complaints out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from dshpc_setup.plan import ClusterPlan, GresLine
from dshpc_setup.problems import LOST, RESET, UNREADABLE
from tests.integration.slurms.asks import VARIABLES, Ask, asks
from tests.integration.slurms.cases import Case
from tests.integration.slurms.cluster import Answer, Outcome

# Complaints of sound configurations too; each with its reason
HARMLESS = (
    r"Could not open \w+ state file",  # the first start: nothing was saved yet
    r"NOTE: Trying backup state save file",  # the same
    r"Job accounting information gathered, but not stored",  # so that sstat works; kept by nobody
    r"sack\.socket.*Broken pipe",  # a client that has its answer is gone before all is written
    r"Caught SIGPIPE\. Ignoring",  # the same
    r"msg_type=SRUN_\w+\) failed",  # srun has ended already when the controller tells it the end
    r"High latency for 1000 calls to gettimeofday",  # a busy test machine
)
_HIDDEN = "65535"  # no GPU for Level Zero, which takes an empty list for all
_BAD = re.compile(r"\b(?:error|fatal): |\bIgnoring\b")
_REFUSED = re.compile(
    r"Requested node configuration is not available|Invalid feature specification"
    r"|Invalid generic resource \(gres\) specification|a job can have \d+ of \w+ at most"
)


def complaints(case: Case, outcome: Outcome) -> list[str]:
    """All that is not as the plan says; [] where all is well."""
    found = [f"slurmd -G: {line}" for line in bad_lines(outcome.accepted.said)]
    if outcome.accepted.code != 0:
        found.append(f"slurmd -G ended with {outcome.accepted.code}")
    found += [f"slurmctld: {line}" for line in bad_lines(outcome.controller_log)]
    found += [f"slurmd: {line}" for line in bad_lines(outcome.node_log)]
    if outcome.stopped:
        return [*found, outcome.stopped, outcome.node.strip()]
    found += _node_complaints(case.plan, outcome.node)
    left = len(asks(case.plan)) - len(outcome.answers)
    if left:
        found.append(f"{left} questions were not asked any more")
    for ask, answer in outcome.answers.items():
        found += [f"{ask.name}: {text}" for text in answer_complaints(case, ask, answer)]
    return found


def bad_lines(text: str) -> list[str]:
    """Lines, each once, by which Slurm complains of more than what HARMLESS has."""
    harmless = re.compile("|".join(HARMLESS))
    lines = [re.sub(r"^\[[^\]]*\] ", "", line) for line in text.splitlines()]  # the time
    bad = [line for line in lines if _BAD.search(line) and not harmless.search(line)]
    return list(dict.fromkeys(bad))


def gres_shown(text: str) -> dict[str, int]:
    """ "gpu:h100:2(S:0-1),shard:h100:8,shard:t4:4" -> {"gpu:h100": 2, "shard": 12}.

    Slurm splits what is shared by the types of its GPUs.
    """
    found: Counter[str] = Counter()
    for item in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *kind, count = item.split(":")
        found[":".join([name, *kind]) if name == "gpu" else name] += int(count)
    return dict(found)


def known_as(case: Case, line: GresLine) -> set[str]:
    """By which names the vendor's own library finds this GPU: its UUID, or its place among its kin.

    Places are counted by PCI address (ROCm: as the kernel lists the cards) over all cards that are
    visible; behind one that does not answer they are not sure. A MIG instance has a UUID alone: a
    number means a card.
    """
    if line.uuid is not None and line.uuid.startswith("MIG-"):
        return {line.uuid}
    kin = [gpu for gpu in case.gpus if gpu.vendor == line.vendor]
    if line.vendor != "amd" and all(gpu.pci_bus_id for gpu in kin):
        kin.sort(key=lambda gpu: gpu.pci_bus_id or "")
    place = next(place for place, gpu in enumerate(kin) if gpu.index == line.index)
    lost = any({LOST, RESET, UNREADABLE} & set(gpu.problems) for gpu in kin[:place])
    by_uuid = {line.uuid} if line.uuid else set()
    return by_uuid if lost and by_uuid else by_uuid | {str(place)}


def _node_complaints(plan: ClusterPlan, node: str) -> Iterator[str]:
    planned = {f"gpu:{kind}": count for kind, count in plan.gres_counts.items()}
    if plan.sharing:
        planned[plan.sharing.kind] = plan.sharing.count
    shown = _field(node, "Gres")
    if (gres_shown(shown) if shown else {}) != planned:
        yield f"its GRES are {shown!r}, and were to be {plan.gres_text!r}"
    wanted = {
        "CPUTot": str(plan.cpus),
        "RealMemory": str(plan.real_memory_mib),
        "ActiveFeatures": ",".join(plan.features),
        "Partitions": ",".join(sorted(item.name for item in plan.partitions)),
    }
    for key, value in wanted.items():
        said = _field(node, key)
        if ",".join(sorted(said.split(","))) != ",".join(sorted(value.split(","))):
            yield f"its {key} is {said!r}, and was to be {value!r}"


def _field(node: str, key: str) -> str:
    found = re.search(rf"(?:^|\s){key}=(\S+)", node)
    return "" if found is None or found[1] == "(null)" else found[1]


def answer_complaints(case: Case, ask: Ask, answer: Answer) -> list[str]:
    """What is wrong with the answer to one question."""
    if ask.refused:
        granted = answer.code == 0 or "create step" in answer.errors  # a job, without its step
        refused = _REFUSED.search(answer.errors) and not granted
        return [] if refused else [f"was not refused: {answer}"]
    if answer.code != 0:
        return [f"failed: {answer}"]
    jobs = [_job(line) for line in answer.text.splitlines()]
    if len(jobs) != len(ask.gets):
        return [f"{len(jobs)} jobs ran of {len(ask.gets)}: {answer}"]
    if ask.any_one:
        return [] if len(_gpus(case, jobs[0][1])) == 1 else [f"one GPU is known by {jobs[0][1]}"]
    if ask.at_once:
        jobs.sort(key=lambda job: job[0])
    pairs = zip(jobs, sorted(ask.gets), strict=True)
    found = [text for (_, said), gets in pairs for text in _job_complaints(case, said, gets)]
    together = [line for _, variables in jobs for line in _gpus(case, variables)]
    if len(set(together)) != len(together):
        found.append(f"two jobs beside each other had one GPU: {jobs}")
    return found


def _job(line: str) -> tuple[str, dict[str, str]]:
    """ "h100 CUDA_VISIBLE_DEVICES=0,1" -> its first word and the variables that name something."""
    word, *items = line.split()
    pairs = (item.split("=", 1) for item in items)
    return word, {name: value for name, value in pairs if value not in ("", _HIDDEN)}


def _gpus(case: Case, variables: dict[str, str]) -> list[GresLine]:
    """The GPUs that a job finds by its variables, each by the variable of its own vendor."""
    return [
        line
        for line in case.plan.gres
        if known_as(case, line) & set(variables.get(VARIABLES[line.vendor], "").split(","))
    ]


def _job_complaints(
    case: Case, variables: dict[str, str], gets: Sequence[tuple[str, int]]
) -> Iterator[str]:
    """Each GPU that it was given is named, in the variable of its vendor, and nothing else is."""
    found = Counter(line.slurm_type for line in _gpus(case, variables))
    if found != Counter(dict(gets)):
        yield f"{variables} is {dict(found)}, and was to be {dict(gets)}"
    named = sum(len(value.split(",")) for value in variables.values())
    if named != sum(count for _, count in gets):
        yield f"{variables} names {named} GPUs, and was to name {dict(gets)}"
