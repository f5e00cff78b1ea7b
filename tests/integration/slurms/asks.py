"""What the users of a planned cluster ask for, and what each of them must get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dshpc_setup.plan import ClusterPlan

VARIABLES = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "ROCR_VISIBLE_DEVICES",
    "intel": "ZE_AFFINITY_MASK",
}

# One line of a job: a word, and the variables that name its GPUs
_TELL = f"""echo "$1" $(env | grep -E '^({"|".join(VARIABLES.values())})=')"""

# No job ends before all of them have begun: no two of them can have the same GPU
_TELL_TOGETHER = f"""
{_TELL}
: > "/tmp/together/$SLURM_JOB_ID"
tries=0
until [ "$(ls /tmp/together | wc -l)" -ge "$2" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 1600 ] || exit 9
    sleep 0.05
done
"""


@dataclass(frozen=True)
class Ask:
    """One question to the cluster. `gets`: for each of its jobs the (type, count) of the GPUs.

    `refused`: the job must not even be queued. `any_one`: it gets one GPU, or a part of one, of any type.
    """

    name: str
    argv: tuple[str, ...]
    gets: tuple[tuple[tuple[str, int], ...], ...] = ((),)
    refused: bool = False
    any_one: bool = False

    @property
    def at_once(self) -> bool:
        """Whether it is several jobs beside each other."""
        return len(self.gets) > 1


def asks(plan: ClusterPlan) -> tuple[Ask, ...]:
    """All that is asked of the cluster of a plan, in this order."""
    return (
        *_without_gpu(plan),
        *_of_each_type(plan),
        *_of_all(plan),
        *_by_other_names(plan),
        *_share_of_cpus(plan),
        *_shared(plan),
        *_by_feature(plan),
    )


def _srun(*options: str) -> tuple[str, ...]:
    return ("srun", "--quiet", "-n1", *options, "sh", "-c", _TELL, "sh", "job")


def _without_gpu(plan: ClusterPlan) -> Iterator[Ask]:
    for partition in plan.partitions:
        yield Ask(f"no GPU, partition {partition.name}", _srun(f"--partition={partition.name}"))
    if len(plan.gres_counts) != 1:  # one type is asked for by name
        too_many = len(plan.gres) + 1
        yield Ask("one GPU more than there is", _srun(f"--gres=gpu:{too_many}"), refused=True)


def _of_each_type(plan: ClusterPlan) -> Iterator[Ask]:
    for kind, count in plan.gres_counts.items():
        yield Ask(f"one {kind}", _srun(f"--gres=gpu:{kind}:1"), (((kind, 1),),))
        yield Ask(
            f"one {kind} more than there is", _srun(f"--gres=gpu:{kind}:{count + 1}"), refused=True
        )


def _of_all(plan: ClusterPlan) -> Iterator[Ask]:
    """All GPUs in one job, by type and without, and a job on each of them at the same time."""
    counts = tuple(plan.gres_counts.items())
    if not counts:
        return
    yield Ask("all GPUs, whatever they are", _srun(f"--gres=gpu:{len(plan.gres)}"), (counts,))
    if len(plan.gres) == 1:
        return
    yield Ask("one GPU, whatever it is", _srun("--gpus=1"), any_one=True)
    everything = ",".join(f"gpu:{kind}:{count}" for kind, count in counts)
    yield Ask("all GPUs by type", _srun(f"--gres={everything}"), (counts,))
    kinds = [kind for kind, count in counts for _ in range(count)]
    script = "mkdir -p /tmp/together; number=$#; tell=$0\n" + (
        'for kind; do srun --quiet -n1 "--gres=gpu:$kind:1" sh -c "$tell" sh "$kind" "$number" '
        "< /dev/null & done; wait"
    )
    argv = ("sh", "-c", script, _TELL_TOGETHER, *kinds)
    yield Ask("a job on each GPU", argv, tuple(((kind, 1),) for kind in kinds))


def _by_other_names(plan: ClusterPlan) -> Iterator[Ask]:
    for said, meant in plan.aliases.items():
        any_one = meant[0] == ""
        gets = ((),) if any_one else (((meant[0], 1),),)
        yield Ask(f"--gres of {said}", _srun(f"--gres=gpu:{said}:1"), gets, any_one=any_one)
        if said in VARIABLES:
            yield Ask(f"--gpus of {said}", _srun(f"--gpus={said}:1"), gets, any_one=any_one)
    for said in plan.ambiguous:
        yield Ask(f"--gres of {said}", _srun(f"--gres=gpu:{said}:1"), refused=True)
        yield Ask(f"--gpus of {said}", _srun(f"--gpus={said}:1"), refused=True)


def _share_of_cpus(plan: ClusterPlan) -> Iterator[Ask]:
    """What a GPU job gets that names no CPUs, and that it may have more tasks than that."""
    share = plan.gpu_cpu_default
    if not share:
        return
    kind = plan.gres[0].slurm_type
    # Of the job: this machine has fewer CPUs, and a step is told of those
    script = f"""
scontrol -o show job "$SLURM_JOB_ID" | grep -q " NumCPUs={share} " || exit 7
{_TELL}"""
    request = f"--gres=gpu:{kind}:1"
    alone = ("srun", "--quiet", request, "sh", "-c", script, "sh", "job")
    yield Ask("the share of CPUs", alone, (((kind, 1),),))
    if share < plan.cpus:
        more = ("salloc", "--quiet", f"-n{share + 1}", request, *_srun(request))
        yield Ask("more tasks than the share has CPUs", more, (((kind, 1),),))


def _shared(plan: ClusterPlan) -> Iterator[Ask]:
    if plan.sharing:
        kind, most = plan.sharing.kind, plan.sharing.count
        yield Ask(f"one {kind}", _srun(f"--gres={kind}:1"), any_one=True)
        of_one = most // len(plan.gres)
        for name, count in (("there is", most), ("one GPU has", of_one)):
            yield Ask(
                f"one {kind} more than {name}", _srun(f"--gres={kind}:{count + 1}"), refused=True
            )
        yield Ask(f"all {kind} of a GPU", _srun(f"--gres={kind}:{of_one}"), any_one=True)


def _by_feature(plan: ClusterPlan) -> Iterator[Ask]:
    if plan.features:
        kind, wanted = plan.gres[0].slurm_type, "&".join(plan.features)
        options = (f"--constraint={wanted}", f"--gres=gpu:{kind}:1")
        yield Ask(f"a node with {wanted}", _srun(*options), (((kind, 1),),))
        yield Ask("a feature that is not there", _srun("--constraint=nosuch"), refused=True)
