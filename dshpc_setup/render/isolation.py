"""The isolation tiers: what `enforced` needs of a container, and why an engine cannot give it.

`default` names a job's GPUs by environment variables. `enforced` has Slurm write control groups, so that
the kernel refuses a job other devices, more memory and more cores than its own. Pure. What can only be
seen from inside is asked by `container/isolation.py` at every start.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.facts import Engine
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.render import seccomp

_OWN_ROOT = "SETFCAP"
"""Without it the kernel gives root's own jobs no root in a namespace of theirs (Linux 5.12); users need
nothing."""
BACK_TO_DEFAULT = Fix(
    "Or keep the default tier", "dshpc config set isolation default", step="alternative"
)


@dataclass(frozen=True)
class Rights:
    """What the service of a compose file gets beyond the default tier's rights."""

    cap_add: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    seccomp: str = ""  # the text of a profile of ours; "": the engine's own


def rights(
    isolation: str, engine: Engine, *, images: bool = False, profiling: bool = False
) -> Rights:
    """Nothing for `default`, unless jobs may run in `images`.

    The engine mounts a container's control groups read-only, and only SYS_ADMIN may change that and
    write device rules: `devices.deny` (version 1), a BPF program (version 2). Docker's AppArmor profile
    refuses every mount whatever the capabilities, and SELinux's container_t to write control groups; they
    are in force where the engine says "name=apparmor", "name=selinux".
    The engine's own seccomp profile opens all of SYS_ADMIN's calls to every process as soon as the
    container has it, namespaces of users among them: ours is in its place. An engine that was built
    without seccomp refuses any.
    No key `cgroup:` is written: the engine shows a container its own groups alone in both versions, and
    docker-compose 1.x does not know that key.
    The built-in engine lets jobs into images by itself (builtin/refused_calls.py).
    """
    if isolation == "default":
        if engine.kind == "builtin":
            return Rights((_OWN_ROOT,))
        return _of_images(engine, profiling=profiling) if images else Rights()
    options = {"apparmor": "apparmor=unconfined", "selinux": "label=disable"}
    return Rights(
        ("SYS_ADMIN",),
        tuple(option for name, option in options.items() if _has(engine, name)),
        seccomp.profile(engine.cgroup_version, profiling=profiling)
        if _has(engine, "seccomp")
        else "",
    )


def _of_images(engine: Engine, *, profiling: bool) -> Rights:
    """A namespace of users and one of mounts: AppArmor's profile refuses every mount, in a namespace too."""
    return Rights(
        (_OWN_ROOT,),
        ("apparmor=unconfined",) if _has(engine, "apparmor") else (),
        seccomp.for_images(profiling=profiling) if _has(engine, "seccomp") else "",
    )


def refusal(engine: Engine, plan: ClusterPlan, *, images: bool = False) -> DshpcError | None:
    """Why the tier `enforced` cannot be had on this machine, as far as can be told from outside;
    `images`: jobs are to run in images."""
    if images:
        return DshpcError(
            "The settings isolation = enforced and containers = on exclude each other.",
            "The one refuses jobs every namespace, the other needs one for each job in an image.",
            (
                Fix("Keep the one", "dshpc config set containers off"),
                Fix("Or the other", "dshpc config set isolation default", step="alternative"),
            ),
        )
    return _of_engine(engine) or _of_gpus(plan)


def _of_engine(engine: Engine) -> DshpcError | None:
    # The kernel takes device rules from the machine's own root alone: devcgroup_access_write and the
    # loading of a BPF_PROG_TYPE_CGROUP_DEVICE ask for the capability in the first user namespace
    if engine.rootless and engine.by_command:
        return _refused(
            "Podman is rootless: the kernel takes device rules from the machine's own root alone.",
            "Use Podman or Docker as root.",
        )
    if engine.rootless:
        return _refused(
            "The engine is rootless: the kernel takes device rules from the machine's own root alone.",
            Fix("Use an engine that runs as root", "docker context use default"),
        )
    if engine.kind == "builtin":
        return _refused(
            "The built-in engine has no control groups: a user may not write them.",
            "Use Docker as root: configure-environment --engine docker",
        )
    if _has(engine, "userns"):
        return _refused(
            "The engine maps the container's root to another user (userns-remap), and the kernel takes "
            "device rules from the machine's own root alone.",
            'Take "userns-remap" out of the engine\'s daemon.json and restart it.',
        )
    if engine.cgroup_driver == "none":
        return _refused(
            "The engine has no control groups (its cgroup driver is none).",
            Fix("See what it says", "docker info", step="look"),
        )
    return None


def _of_gpus(plan: ClusterPlan) -> DshpcError | None:
    if plan.simulated and plan.gres:
        return _refused(
            "Simulated GPUs are names of /dev/null: a job that may not open one could not open "
            "/dev/null either.",
            "Use real GPUs: --simulate none.",
        )
    uses = Counter(gpu.device_files for gpu in plan.gpus if gpu.device_files and not gpu.mig)
    for files, count in uses.items():
        if count > 1:
            return _refused(
                f"{count} GPUs stand behind one device file ({', '.join(files)}): the kernel grants or "
                "refuses them together.",
                Fix("Use one of them", "dshpc config set devices 0"),
            )
    return None


def _has(engine: Engine, name: str) -> bool:
    """Among the engine's security options, such as "name=seccomp,profile=default"."""
    return any(option.split(",")[0] == f"name={name}" for option in engine.security_options)


def _refused(why: str, todo: str | Fix) -> DshpcError:
    return DshpcError(
        "The setting isolation = enforced cannot be kept on this machine.",
        why,
        (todo, BACK_TO_DEFAULT),
    )
