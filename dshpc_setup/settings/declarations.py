"""Each setting, declared once: its key in dshpc.yaml, its flag, its variable, and how its text is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup import gpu_vendors
from dshpc_setup.settings import addresses, texts


@dataclass(frozen=True)
class Declaration:
    """One setting: its key in dshpc.yaml, its flag, its variable, how its text is read."""

    name: str
    default: Any
    help: str
    parse: Callable[[str], Any]
    metavar: str = "TEXT"
    in_container: bool = False  # handed to the container
    live: bool = False  # by a file of config/, read anew while jobs run; else by its environment
    list_separator: str = ","  # between the items of a YAML list

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "DSHPC_" + self.name.upper()


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration(
        "prefix",
        "dshpc",
        "Name of this cluster: container <prefix>-slurm, Slurm node and cluster <prefix>.",
        texts.prefix,
        "NAME",
        in_container=True,
    ),
    Declaration(
        "gpu",
        "auto",
        f"Which GPUs to use: auto, {', '.join(gpu_vendors.names())} or none.",
        texts.choice("auto", *gpu_vendors.names(), "none"),
        "VENDOR",
        in_container=True,
    ),
    Declaration(
        "devices",
        (),
        "Only these GPUs, by index or UUID: 0,2.",
        texts.devices,
        "LIST",
    ),
    Declaration(
        "unhealthy_gpus",
        "exclude",
        "GPUs that compute and that their own firmware or driver calls broken (bad memory without a "
        "spare, an unhealthy NVLink fabric): exclude (no job gets them) or use.",
        texts.choice("exclude", "use"),
        "HOW",
        in_container=True,
    ),
    Declaration(
        "simulate",
        "",
        "Made-up GPUs instead of real ones: h100:2, mig, mixed, mi300x:8, or several at once, "
        "h100:2+t4:1 (16 at most); none to stop.",
        texts.profile,
        "PROFILE",
        in_container=True,
    ),
    Declaration(
        "nodes",
        1,
        "Nodes of this cluster on this machine, a container each, the controller's own among them: a "
        "number, or what each one simulates: h100:8,h100:8,mi300x:8,none.",
        texts.nodes,
        "N|LIST",
    ),
    Declaration(
        "engine",
        "auto",
        "What runs the container: docker, podman (by its own command), builtin (no Docker and no root "
        "needed), or auto: Docker where it lets you in, else Podman where it works.",
        texts.choice("auto", "docker", "podman", "builtin"),
        "ENGINE",
    ),
    Declaration(
        "work",
        "work",
        "Folder of your data and scripts, seen in the cluster under the same path.",
        texts.folder,
        "DIR",
    ),
    Declaration(
        "home",
        "",
        "Users' homes in the cluster: host (their own, under the same paths) or kept (a volume of the "
        "cluster's); default: host for a new cluster where the engine keeps the owners of files.",
        texts.choice("host", "kept"),
        "WHERE",
    ),
    Declaration(
        "mounts",
        (),
        "More folders of this machine, seen in the cluster under the same paths, for reading only with "
        ":ro: /data,/scratch:ro.",
        texts.mounts,
        "LIST",
    ),
    Declaration(
        "toolkit",
        "none",
        "host lends jobs this machine's CUDA and ROCm for reading, with the variables that a module sets; "
        "none does not.",
        texts.choice("none", "host"),
        "WHOSE",
    ),
    Declaration(
        "cuda_paths",
        (),
        "The folders of these toolkits, where they are not in /usr/local/cuda*, /opt/cuda or /opt/rocm*; "
        "jobs get the variables of the first.",
        texts.toolkits,
        "LIST",
    ),
    Declaration(
        "workspace_access",
        "private",
        "Who may read a job's workspace and log: private (its user alone) or group (the user's group).",
        texts.choice("private", "group"),
        "WHO",
        in_container=True,
    ),
    Declaration(
        "partition",
        "debug",
        "Name of the Slurm partition.",
        texts.identifier,
        "NAME",
        in_container=True,
        live=True,
    ),
    Declaration(
        "partitions",
        (),
        "More partitions beside it, each NAME or NAME=LONGEST TIME: short=1:00:00,long=7-0.",
        texts.partitions,
        "LIST",
        in_container=True,
        live=True,
    ),
    Declaration(
        "gpu_sharing",
        "none",
        "Let jobs share a GPU: none, shard:N (N jobs on each GPU, --gres=shard:1) or mps "
        "(NVIDIA MPS, --gres=mps:50 for half a GPU).",
        texts.sharing,
        "HOW",
        in_container=True,
    ),
    Declaration(
        "gres_type",
        "model",
        "What Slurm calls the GPUs: model (--gres=gpu:h100:1), or index: a name for each "
        "(--gres=gpu:gpu0:1, --target NODE::0,2), so that particular ones can be asked for.",
        texts.choice("model", "index"),
        "HOW",
        in_container=True,
    ),
    Declaration(
        "isolation",
        "default",
        "default: a job's GPUs are named by environment variables; enforced: a job can open no other "
        "device and use no more memory and cores than its own (the container gets more rights).",
        texts.choice("default", "enforced"),
        "TIER",
        in_container=True,
    ),
    Declaration(
        "containers",
        "off",
        "on: jobs may run in images of their own (dshpc run --image), for which the container gets more "
        "rights; with --engine builtin they may in any case.",
        texts.choice("off", "on"),
        "WHETHER",
    ),
    Declaration(
        "slurm_conf_extra",
        "",
        "Further lines for slurm.conf, such as SchedulerParameters=defer; in dshpc.yaml a text of "
        "several lines or a list.",
        texts.lines,
        "TEXT",
        in_container=True,
        live=True,
        list_separator="\n",
    ),
    Declaration(
        "reserve_mib",
        None,
        "Memory in MiB kept from jobs (default: a tenth).",
        texts.count,
        "MIB",
        in_container=True,
        live=True,
    ),
    Declaration("shm_size", "1g", "Size of /dev/shm for jobs, such as 8g.", texts.size, "SIZE"),
    Declaration(
        "pids_limit",
        None,
        "Most processes and threads in the container, 0 for no limit (default: 16384, or 128 for each "
        "CPU where that is more).",
        texts.processes,
        "N",
    ),
    Declaration(
        "log_size",
        "",
        "Most disk space of the container's log, such as 100m, or engine for the engine's own settings "
        "(default: 50m where the engine's driver is json-file and daemon.json names no max-size).",
        texts.log_size,
        "SIZE",
    ),
    Declaration(
        "array_limit",
        10001,
        "Most tasks of one job array (Slurm's MaxArraySize).",
        texts.array_limit,
        "N",
        in_container=True,
        live=True,
    ),
    Declaration(
        "job_limit",
        None,
        "Most jobs that Slurm knows at once, queued, running or just ended, each task of an array "
        "counted (Slurm's MaxJobCount; default: 100000, or five times array_limit where that is more).",
        texts.job_limit,
        "N",
        in_container=True,
        live=True,
    ),
    Declaration(
        "longest_wait",
        "1h",
        "How long a job waits before no other may begin that takes what it needs: 30m, 1h, 1d, or none "
        "for no end.",
        texts.wait,
        "TIME",
        in_container=True,
        live=True,
    ),
    Declaration(
        "slurm_ports",
        (6817, 6818),
        "Ports of slurmctld and slurmd, then of slurmdbd (6819), for accounting. Where containers have the "
        "machine's own network (the built-in engine, several nodes on Podman), those that are free are "
        "chosen, with one more for each further node.",
        addresses.ports,
        "N,N[,N]",
        in_container=True,
    ),
    Declaration(
        "listen",
        "off",
        "For a cluster of several machines: the IPv4 address of this one, or its network interface, at which "
        "Slurm listens for the others; off: at none.",
        addresses.listen,
        "ADDRESS|INTERFACE|off",
        in_container=True,
    ),
    Declaration(
        "srun_ports",
        (61001, 61999),
        "Ports at which srun listens for other machines, the first and the last (Slurm's SrunPortRange), "
        "where the setting listen names an address.",
        addresses.port_range,
        "N-N",
        in_container=True,
    ),
    Declaration(
        "clean_after",
        "30d",
        "Age at which dshpc job clean offers the workspace of an ended job, such as 30d or 12h.",
        texts.age,
        "TIME",
        in_container=True,
    ),
    Declaration(
        "accounting",
        "off",
        "Slurm's accounting (slurmdbd and a MariaDB of the cluster's own), for sacct, sreport, sacctmgr, "
        "limits and fair share: on or off.",
        texts.choice("on", "off"),
        "on|off",
        in_container=True,
        live=True,
    ),
    Declaration(
        "rest",
        "off",
        "Slurm's REST API (slurmrestd): off, on (a socket in the container), or an address of this machine "
        "too, such as 127.0.0.1:6820.",
        addresses.rest,
        "WHERE",
        in_container=True,
    ),
    Declaration(
        "idle_gpu",
        "30m",
        "Time without any use after which a GPU that a job holds is named idle, such as 30m or 2h; 0: never.",
        texts.age,
        "TIME",
        in_container=True,
        live=True,
    ),
    Declaration(
        "release_idle",
        "off",
        "Time without any use of all its GPUs after which a job is ended, after a warning in its log, "
        "such as 2h; off: never.",
        texts.age_or_off,
        "TIME|off",
        in_container=True,
        live=True,
    ),
    Declaration(
        "metrics",
        "off",
        "Where metrics are served for Prometheus, such as 127.0.0.1:9410; off: nowhere.",
        addresses.listener,
        "ADDRESS:PORT|off",
    ),
    Declaration(
        "dashboard",
        "off",
        "Where the dashboard is served while the cluster runs, such as 127.0.0.1:8410; off: only by "
        "dshpc dashboard.",
        addresses.own_listener,
        "ADDRESS:PORT|off",
    ),
    Declaration(
        "base_image",
        "debian:trixie-slim",
        "Base image; where no registry answers, it is made of Debian packages.",
        texts.image,
        "IMAGE",
    ),
    Declaration(
        "apt_mirror",
        "",
        "Debian package mirror for the image (default: the host's own, if it is Debian).",
        texts.mirror,
        "URL",
    ),
    Declaration(
        "cuda_runtime",
        "no",
        "Put Debian's CUDA runtime libraries into the image: yes or no.",
        texts.choice("yes", "no"),
        "YES|NO",
    ),
    Declaration(
        "amd_profiling",
        "no",
        "Let AMD's profilers and debuggers work: seccomp unconfined and ptrace (SYS_PTRACE); "
        "yes or no.",
        texts.choice("yes", "no"),
        "YES|NO",
    ),
)

BY_NAME: Mapping[str, Declaration] = {item.name: item for item in DECLARATIONS}
