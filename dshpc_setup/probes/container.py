"""Whether we are in a container, and which engine made it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dshpc_setup.probes.trace import Trace

_NAMES = {
    "docker": "docker",
    "podman": "podman",
    "lxc": "lxc",
    "lxc-libvirt": "lxc",
    "systemd-nspawn": "systemd-nspawn",
    "kubernetes": "kubernetes",
    "kube": "kubernetes",
    "containerd": "containerd",
}
# What Docker, Podman and containerd call the group of a container, in either cgroup version.
_GROUPS = (
    (r"/kubepods(?:[./-]|$)", "kubernetes"),
    (r"/libpod-[0-9a-f]{64}", "podman"),
    (r"/docker/[0-9a-f]{64}|/docker-[0-9a-f]{64}\.scope", "docker"),
    (r"/(?:cri-containerd|nerdctl)-[0-9a-f]{64}", "containerd"),
    (r"/lxc(?:\.payload)?[./]", "lxc"),
)
# Where they keep the layers that our root is an overlay of.
_LAYERS = (
    (r"/docker/(?:[\d.]+/)?overlay2/", "docker"),
    (r"/containers/storage/overlay/", "podman"),
    (r"io\.containerd\.snapshotter", "containerd"),
)


@dataclass(frozen=True)
class Sign:
    """One thing that speaks for a container, and the engine that it names."""

    engine: str
    source: str
    says: str


def signs(look: Trace) -> list[Sign]:
    """All signs of a container, the one to believe first; none where we are in no container."""
    if _is_the_machine(look):
        return []
    found = [*_kubernetes(look), *_told(look), *_files(look), *_group(look), *_root(look)]
    if not found:
        found = list(_namespace(look))
    # An image may say "oci", or that it is some container; whoever names the engine knows more.
    return sorted(found, key=lambda sign: sign.engine == "other")


def _is_the_machine(look: Trace) -> bool:
    """Whether we see the kernel's threads and stand on its own root: then files of a container's are what an
    image brought along from which this machine was made (seen in microVMs of Firecracker's)."""
    threads = look.text("/proc/2/comm")
    return (
        threads is not None
        and threads.strip() == "kthreadd"
        and is_first_root(look.text("/proc/self/mountinfo") or "")
    )


def _kubernetes(look: Trace) -> Iterator[Sign]:
    """Before all else: a pod's container is Docker's, containerd's or CRI-O's as well."""
    for folder in ("/run/secrets/kubernetes.io", "/var/run/secrets/kubernetes.io"):
        if look.machine.exists(folder):
            yield Sign("kubernetes", folder, "a pod's account is mounted there")
            return
    if look.machine.env.get("KUBERNETES_SERVICE_HOST"):
        yield Sign("kubernetes", "KUBERNETES_SERVICE_HOST", "set, as in every pod")


def _told(look: Trace) -> Iterator[Sign]:
    """What the container's maker told the init system or us."""
    for path in ("/run/host/container-manager", "/run/systemd/container"):
        yield from _named(look.text(path), path)
    yield from _named(parse_environ(look.text("/proc/1/environ") or ""), "/proc/1/environ")
    yield from _named(look.machine.env.get("container"), "the variable `container`")


def _named(name: str | None, source: str) -> Iterator[Sign]:
    name = (name or "").strip().lower()
    if name and name not in ("wsl", "none"):  # WSL is a kind of machine, and no container
        yield Sign(_NAMES.get(name, "other"), source, f"it says {name[:40]!r}")


def parse_environ(text: str) -> str | None:
    """The value of `container` in a /proc/PID/environ."""
    for item in text.split("\0"):
        key, _, value = item.partition("=")
        if key == "container":
            return value
    return None


def _files(look: Trace) -> Iterator[Sign]:
    # Docker's last: an image made from a running container may carry it along.
    for path, engine in (
        ("/run/.containerenv", "podman"),
        ("/dev/.lxc", "lxc"),
        ("/dev/lxd/sock", "lxc"),
        ("/dev/incus/sock", "lxc"),
        ("/.dockerenv", "docker"),
    ):
        if look.machine.exists(path):
            yield Sign(engine, path, "it is there")
    if look.machine.exists("/proc/vz") and not look.machine.exists("/proc/bc"):
        yield Sign("other", "/proc/vz", "OpenVZ, from the inside")


def _group(look: Trace) -> Iterator[Sign]:
    engine = parse_group(look.text("/proc/self/cgroup") or "")
    if engine:
        yield Sign(engine, "/proc/self/cgroup", "our control group is a container's")


def parse_group(text: str) -> str | None:
    """The engine whose container's group /proc/self/cgroup names."""
    paths = "\n".join(line.split(":", 2)[-1] for line in text.splitlines() if line.count(":") >= 2)
    return next((engine for pattern, engine in _GROUPS if re.search(pattern, paths, re.M)), None)


def _root(look: Trace) -> Iterator[Sign]:
    engine = parse_root(look.text("/proc/self/mountinfo") or "")
    if engine:
        yield Sign(engine, "/proc/self/mountinfo", "our root is made of its layers")


def parse_root(mountinfo: str) -> str | None:
    """The engine whose layers the overlay at "/" is made of."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if before.split(" ")[4:5] == ["/"] and after.startswith(
            ("overlay ", "fuse.fuse-overlayfs ")
        ):
            return next((name for pattern, name in _LAYERS if re.search(pattern, after)), None)
    return None


def is_first_root(mountinfo: str) -> bool:
    """Whether "/" is mounted on the kernel's first mount, whose id is 1. A container's never is: its mount
    namespace is later, and so are the ids in it. proc_pid_mountinfo(5)."""
    roots = (line.split(" ") for line in mountinfo.splitlines())
    return any(fields[1:2] == ["1"] and fields[3:5] == ["/", "/"] for fields in roots)


def _namespace(look: Trace) -> Iterator[Sign]:
    """The root of a cgroup tree has no type: one that has it is a part, shown to us as the whole."""
    path = "/sys/fs/cgroup/cgroup.type"
    wsl = "microsoft" in look.machine.system[1].lower()  # its distributions share one tree
    if not wsl and look.machine.exists(path):
        yield Sign("other", path, "what we see as the root of the control groups is none")
