"""NVIDIA's driver as containers get it: images against the driver, lost GPUs, CUDA's node, WSL."""

from __future__ import annotations

from dshpc_setup import remedies
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    warning,
)
from dshpc_setup.diagnose.nvidia_evidence import (
    answer,
    by_test,
    cards,
    evidence,
    in_container,
    in_wsl,
    nvml_code,
    on_nvidia,
    said,
    titled,
)
from dshpc_setup.diagnose.proof import Look, from_proof
from dshpc_setup.diagnose.ways import tested
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Disagreement
from dshpc_setup.facts.nvidia_driver import UVM, WSL_DEVICE, WSL_FOLDER
from dshpc_setup.passthrough import findings
from dshpc_setup.problems import DRIVER_TOO_OLD, LINUX_DRIVER_INSIDE

_BLOCKED, _UNKNOWN = 17, 999


@on_nvidia
def _kept(known: CheckInput) -> Verdict:
    """Whether a container keeps its GPUs when systemd reads its units anew."""
    told = by_test(known, findings.LOST_ON_RELOAD)
    if told is not None:
        return told
    anew = Fix("Restart the container, which gets them back", "dshpc restart")
    if in_container(known) and nvml_code(known) == _UNKNOWN:
        return fault(
            'NVML says "Unknown Error" in this container though its nodes are there: the device cgroup '
            "has closed them, mostly because systemd was reloaded on the host.",
            *said(answer(known)),
            fix=(Fix("Restart the container on the host"), *remedies.device_links(known.facts)),
        )
    closed = _closed(known)
    if not _by_hook(known):
        return fine()
    links = _links(known)
    if closed:
        return fault(
            "The running container cannot open its GPUs any more, and this machine can: systemd was "
            'reloaded and closed them ("Failed to initialize NVML: Unknown Error").',
            *(f"{path} does not open in the container" for path in closed),
            *links,
            fix=(anew, *(() if _all_linked(known) else remedies.device_links(known.facts))),
        )
    if _all_linked(known):
        return fine(*links)
    may = note(
        "NVIDIA's hook hands over the GPUs, and systemd keeps the cgroups: `systemctl daemon-reload` may "
        "take the GPUs from running containers.",
        *links,
        fix=remedies.device_links(known.facts),
    )
    return titled("Containers may lose their GPUs when systemd reloads", may)


def _all_linked(known: CheckInput) -> bool:
    """Whether systemd finds every node: then it keeps them open when it reads its units anew."""
    seen = known.observed.device_links
    return seen.state == "present" and all(seen.links.values())


def _links(known: CheckInput) -> tuple[str, ...]:
    """What /dev/char holds, as evidence."""
    seen = known.observed.device_links
    if seen.state == "denied":
        return ("/dev/char: this user may not look there",)
    if seen.state != "present":
        return ()
    lacking = [node for node, there in seen.links.items() if not there]
    if not lacking:
        return ("/dev/char has a link for each of NVIDIA's nodes",)
    return (f"/dev/char has no link for {', '.join(lacking)}",)


def _by_hook(known: CheckInput) -> bool:
    """GPUs given by NVIDIA's hook under systemd's cgroups, which does not learn of them."""
    engine, proof = known.facts.engine, tested(known)
    if engine.cgroup_driver != "systemd" or engine.rootless or in_wsl(known) or proof is None:
        return False
    way = proof.handover
    return way.mechanism in ("device-request", "runtime") and way.driver == "nvidia"


def _closed(known: CheckInput) -> tuple[str, ...]:
    """Nodes of NVIDIA's that the cluster's container cannot open."""
    inside = known.observed.inside
    if inside is None or not cards(known):
        return ()
    return tuple(
        path for path, opens in inside.device_files.items()
        if path.startswith("/dev/nvidia") and not opens
    )  # fmt: skip


@on_nvidia
def _uvm(known: CheckInput) -> Verdict:
    """Whether the node is there through which CUDA shares memory with the GPU."""
    told = by_test(known, findings.NO_UVM)
    if told is not None:
        return told
    if in_wsl(known):
        return not_here("WSL has no such node.")
    lacking = [spec.path for spec in known.facts.engine.cdi_specs if UVM in spec.missing]
    if not lacking and evidence(known, "nvidia-uvm") is None:
        nodes = evidence(known, "nvidia-nodes")
        there = nodes is not None and nodes.state == "present"
        return fine(UVM) if there else not_here("There is no device node of NVIDIA's.")
    if not lacking and not in_container(known):
        return note(
            f"{UVM} is not there yet. The first CUDA program of root makes it, and NVIDIA's hook does "
            "for a container; another user's program does not start before.",
            "there is none beside the GPUs' own nodes",
            fix=remedies.load_uvm(known.facts),
        )
    anew = Fix("Restart the container, with all of NVIDIA's nodes handed over")
    return warning(
        f"{UVM} is not there, without which CUDA does not start; it comes with the first CUDA program of "
        "root, or by the command below.",
        *(f"{path} names it, and it is missing" for path in lacking),
        fix=(anew,) if in_container(known) else remedies.load_uvm(known.facts),
    )


def _image(finding: str) -> Look:
    """A check of the image against driver and GPU, which a test-run makes."""
    return on_nvidia(from_proof(finding))


def _wsl_gpu(known: CheckInput) -> Verdict:
    """Whether Windows lends its GPU to this WSL."""
    told = by_test(known, findings.NO_WSL_GPU)
    if told is not None:
        return told
    if not in_wsl(known) or in_container(known):
        return not_here("This is no WSL 2.")
    if known.facts.gpus.simulated:
        return not_here("The GPUs are simulated.")
    if cards(known):
        return fine(WSL_DEVICE)
    gpus, lent = known.facts.gpus, evidence(known, "wsl")
    words = (*said(lent), *said(answer(known)))
    fix = remedies.update_wsl(known.facts)
    if gpus.state in ("error", "timeout", "denied"):
        cause = (
            "Windows lends a GPU to WSL, and the driver in Windows refuses or cannot be reached."
        )
        if nvml_code(known) == _BLOCKED:
            cause = (
                '"GPU access blocked by the operating system": the driver of Windows was changed '
                "under WSL."
            )
        return fault(cause, *words, fix=fix)
    if lent is not None and lent.state == "absent":
        cause = f"The driver of Windows is there ({WSL_FOLDER}), and WSL shows no {WSL_DEVICE}."
        return warning(cause, *words, fix=fix)
    lacking = note(f"{gpus.detail or 'Windows lends no NVIDIA GPU'}.", *words)
    return titled("Windows lends no NVIDIA GPU to WSL", lacking)


@on_nvidia
def _driver_in_wsl(known: CheckInput) -> Verdict:
    """Whether a Linux driver was installed inside WSL, where Windows' alone works."""
    told = [item for item in known.facts.gpus.disagreements if item.finding == LINUX_DRIVER_INSIDE]
    if not told:
        return fine()
    cause = "WSL uses the driver of Windows. A Linux driver inside hides its libraries."
    return (warning if cards(known) else fault)(
        cause,
        *(f"{layer.source}: {layer.says}" for layer in told[0].layers),
        fix=(
            _without_linux_driver(told[0]),
            Fix("Then restart WSL, in PowerShell", "wsl --shutdown", step="after"),
        ),
    )


def _without_linux_driver(told: Disagreement) -> Fix:
    """By the packages that were found: a pattern such as nvidia-* takes the container toolkit along."""
    packages = " ".join(told.packages)
    if packages:
        text = "Remove the Linux driver's packages; NVIDIA's container toolkit and CUDA may stay"
        return Fix(text, f"sudo apt-get remove --purge {packages} && sudo apt-get autoremove")
    return Fix(
        "Remove the Linux driver; where NVIDIA's own installer brought it", "sudo nvidia-uninstall"
    )


_TITLES = findings.TITLES


def _check(identity: str, title: str, look: Look, because: tuple[str, ...] = ()) -> Check:
    return Check(identity, "driver", title, _TITLES[identity], look, because=because)


_UNLOADED = (findings.DRIVER_NOT_LOADED, findings.VERSIONS_DIFFER)

CHECKS: tuple[Check, ...] = (
    _check(findings.NO_WSL_GPU, "Windows lends its GPU to WSL", _wsl_gpu, (LINUX_DRIVER_INSIDE,)),
    _check(LINUX_DRIVER_INSIDE, "No Linux driver of NVIDIA's lies inside WSL", _driver_in_wsl),
    _check(findings.NO_UVM, "CUDA's device node is there", _uvm, _UNLOADED),
    _check(findings.LOST_ON_RELOAD, "Containers keep their GPUs when systemd reloads", _kept,
           (findings.NO_CGROUPS, findings.SELINUX)),
    _check(findings.IMAGE_TOO_NEW, "The image's CUDA is one that the driver offers",
           _image(findings.IMAGE_TOO_NEW), (DRIVER_TOO_OLD,)),
    _check(findings.NO_FORWARD_COMPATIBILITY, "The image's CUDA compatibility libraries fit the GPU",
           _image(findings.NO_FORWARD_COMPATIBILITY), (findings.IMAGE_TOO_NEW,)),
    _check(findings.GPU_NEWER_THAN_IMAGE, "The image's CUDA knows the GPU",
           _image(findings.GPU_NEWER_THAN_IMAGE)),
    _check(findings.GPU_TOO_OLD_FOR_IMAGE, "The image's CUDA still knows the GPU",
           _image(findings.GPU_TOO_OLD_FOR_IMAGE)),
    _check(findings.NO_COMPUTE_CAPABILITY, "The container gets the driver with CUDA",
           _image(findings.NO_COMPUTE_CAPABILITY)),
)  # fmt: skip
