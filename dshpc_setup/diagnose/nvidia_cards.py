"""NVIDIA's cards: is each there, ready to compute, and in a mode that lets jobs in?"""

from __future__ import annotations

from collections.abc import Sequence

from dshpc_setup import remedies
from dshpc_setup.diagnose.common import named
from dshpc_setup.diagnose.kernel_log import XID, lines, wanted, xids
from dshpc_setup.diagnose.kernel_messages import devices
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    LogWords,
    Verdict,
    fault,
    fine,
    note,
    warning,
)
from dshpc_setup.diagnose.nvidia_evidence import (
    answer,
    by_test,
    cards,
    evidence,
    handle,
    in_container,
    in_wsl,
    left_out,
    nvml_code,
    on_nvidia,
    said,
    titled,
)
from dshpc_setup.diagnose.nvidia_past import over, running_at
from dshpc_setup.diagnose.xid_catalogue import RECOVERY
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Disagreement, GpuDevice
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.cuda import is_data_centre
from dshpc_setup.problems import LOST, NO_FABRIC, NO_INSTANCES, PROHIBITED, RESET, UNREADABLE
from dshpc_setup.remedies import Fixes

PERSISTENCE_OFF = "DSH-NV-029"
EXCLUSIVE = "DSH-NV-082"

_DENIED, _GPU_IS_LOST, _RESET_REQUIRED = 4, 15, 16
_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia0")


def _with(known: CheckInput, problem: str) -> tuple[GpuDevice, ...]:
    return tuple(gpu for gpu in cards(known) if problem in gpu.problems)


@on_nvidia
def _readable(known: CheckInput) -> Verdict:
    """Whether the driver opens each card, for this user."""
    closed = _with(known, UNREADABLE)
    told = _closed(known)
    words = tuple(f"{layer.source}: {layer.says}" for item in told for layer in item.layers)
    log = lines(
        known.observed.kernel, r"RmInitAdapter failed|rm_init_adapter failed|fails to start", 4
    )
    see = Fix("See what the driver wrote about it", "sudo dmesg | grep -i NVRM", step="look")
    if closed:
        cause = "The driver lists a GPU and cannot open it: jobs do not get it."
        return left_out(known, closed, cause, (see, *_reset_steps(known, closed)))
    if told:
        cause = "The driver holds a card that it could not start: jobs do not get it."
        say = warning if cards(known) else fault
        heard = () if cards(known) else said(answer(known))
        return say(cause, *words, *heard, *log, fix=(see, *remedies.reboot(known.facts)))
    nvml = answer(known)
    if cards(known) or nvml is None:
        return fine(*(named(gpu) for gpu in cards(known)))
    if nvml.code == _DENIED or nvml.state == "denied":
        cause = (
            "NVML has no permission: this user, or this container, may not open the GPU's nodes."
        )
        return fault(cause, *said(nvml), fix=_let_in(known))
    if nvml.state == "present" and known.facts.gpus.state == "error":
        cause = 'The driver is loaded and lists no GPU ("No devices were found"): it could not start one.'
        return fault(cause, *said(evidence(known, "nvidia-pci")), *log,
                     fix=(see, *remedies.reboot(known.facts)))  # fmt: skip
    return fine()


def _closed(known: CheckInput) -> list[Disagreement]:
    """Cards that the driver did not start."""
    return [item for item in known.facts.gpus.disagreements if item.code == "not-started"]


def _let_in(known: CheckInput) -> Fixes:
    platform = known.facts.platform
    selinux = remedies.selinux(known.facts) if platform.selinux == "enforcing" else ()
    if platform.in_container:
        host = Fix("Restart the container, with the GPUs handed over")
        return (*selinux, host)
    return (*selinux, *remedies.node_groups(known.facts, _CONTROL_NODES))


@on_nvidia
def _instances(known: CheckInput) -> Verdict:
    """Whether a card in MIG mode has been cut."""
    empty = _with(known, NO_INSTANCES)
    if not empty:
        return fine(*(f"{named(gpu)}: {len(gpu.mig)} instances" for gpu in cards(known) if gpu.mig))
    card = handle(empty[0])
    return left_out(
        known,
        empty,
        "MIG mode is enabled and no MIG instance was made: nothing can compute on that GPU.",
        (
            Fix(
                "See which instances can be made",
                f"sudo nvidia-smi mig -i {card} -lgip",
                step="look",
            ),
            Fix(
                "Make some, each with its compute instance (PROFILE is an ID of that list)",
                f"sudo nvidia-smi mig -i {card} -cgi PROFILE -C",
            ),
            Fix(
                "Or use the GPU whole: switch MIG off",
                f"sudo nvidia-smi -i {card} -mig 0",
                step="alternative",
            ),
        ),
    )


@on_nvidia
def _fabric(known: CheckInput) -> Verdict:
    """Whether the GPUs of an NVSwitch machine were joined."""
    waiting = _with(known, NO_FABRIC)
    if not waiting:
        return fine(*_fabric_states(cards(known)))
    cause = (
        "These GPUs hang on NVSwitches, and the Fabric Manager has not set these up: CUDA ends with "
        'error 802, "system not yet initialized".'
    )
    verdict = left_out(known, waiting, cause, remedies.fabric_manager(known.facts))
    verdict_words = (*_fabric_states(waiting), *verdict.evidence)
    return (fault if verdict.state == "error" else warning)(cause, *verdict_words, fix=verdict.fix)


def _fabric_states(gpus: tuple[GpuDevice, ...]) -> tuple[str, ...]:
    states = dict.fromkeys(gpu.fabric.state for gpu in gpus if gpu.fabric is not None)
    return tuple(f"NVML: fabric {state}" for state in states if state != "not-supported")


@on_nvidia
def _on_the_bus(known: CheckInput) -> Verdict:
    """Whether a card has fallen off the bus."""
    log = _fell_off(known)
    fix = (
        *remedies.reboot(known.facts),
        Fix(
            "Where it happens again: see to the card's power cables, its seat in the PCIe slot, cooling"
        ),
    )
    cause = (
        "The GPU has fallen off the bus: PCIe does not reach it any more, mostly because of a power "
        "problem."
    )
    lost = _with(known, LOST)
    if lost:
        verdict = left_out(known, lost, cause, fix)
        say = fault if verdict.state == "error" else warning
        return say(cause, *verdict.evidence, *log, fix=fix)
    if nvml_code(known) == _GPU_IS_LOST:
        return fault(cause, *said(answer(known)), *log, fix=fix)
    gone = [item for item in known.facts.gpus.disagreements if item.code == "off-the-bus"]
    if gone:
        words = (f"{layer.source}: {layer.says}" for item in gone for layer in item.layers)
        return warning(cause, *words, *log, fix=fix)
    still = _fell_off(known, back=False)
    if still:
        return fault(f"{cause} It was seen since the machine started.", *still, fix=fix)
    if log and not by_test(known, LOST):
        cause = (
            "A GPU had fallen off the bus since the machine started, and answers again. Where it comes "
            "again it is mostly because of a power problem."
        )
        return titled("A GPU had fallen off the bus", note(cause, *log, fix=fix[-1:]))
    return by_test(known, LOST) or fine()


def _fell_off(known: CheckInput, *, back: bool = True) -> tuple[str, ...]:
    """What the kernel's log says of it: an Xid, or that a card did not answer at the driver's start.

    `back`: also of cards that are there again.
    """
    gone, running = over(known), running_at(known)
    told = [
        item.line
        for item in xids(known.observed.kernel)
        if item.number == 79 and (back or item not in gone)
    ]
    started = [
        line
        for line in lines(known.observed.kernel, _FELL_OFF)
        if back or not devices(line) or devices(line) - running
    ]
    return tuple(dict.fromkeys((*told, *started)))[-3:]


@on_nvidia
def _reset(known: CheckInput) -> Verdict:
    """Whether a card waits for a reset."""
    cause = "After an error the GPU does nothing until it is reset."
    waiting = _with(known, RESET)
    if waiting:
        return left_out(known, waiting, cause, _reset_steps(known, waiting))
    if nvml_code(known) == _RESET_REQUIRED:
        alone = cards(known) if len(cards(known)) == 1 else ()
        return fault(cause, *said(answer(known)), fix=_reset_steps(known, alone))
    asked = wanted(known.observed.kernel, "reset")
    if asked:
        fix = remedies.reset_gpu(known.facts, tuple(asked))
        return warning("The driver asked for a reset of the GPU.", *asked.values(), fix=fix)
    return by_test(known, RESET) or fine()


def _reset_steps(known: CheckInput, gpus: Sequence[GpuDevice]) -> Fixes:
    return remedies.reset_gpu(known.facts, tuple(handle(gpu) for gpu in gpus))


@on_nvidia
def _prohibited(known: CheckInput) -> Verdict:
    """Whether a card's compute mode keeps every program out."""
    shut = _with(known, PROHIBITED)
    if not shut:
        return fine()
    cause = "Its compute mode is Prohibited: no program may use CUDA on it, and jobs do not get it."
    fix = tuple(
        Fix(f"Let programs compute on GPU {gpu.index}", f"sudo nvidia-smi -i {handle(gpu)} -c 0")
        for gpu in shut
    )
    return left_out(known, shut, cause, fix)


@on_nvidia
def _exclusive(known: CheckInput) -> Verdict:
    """Whether a card lets in one program at a time, and whether more are to share it."""
    alone = [gpu for gpu in cards(known) if (gpu.compute_mode or "").startswith("exclusive")]
    sharing = known.plan.sharing if known.plan is not None else None
    # NVIDIA's guide to MPS wants exclusive process: its server is the one program then
    if not alone or (sharing is not None and sharing.kind == "mps"):
        return fine()
    words = tuple(f"{named(gpu)}: {gpu.compute_mode}" for gpu in alone)
    fix = tuple(
        Fix(f"Let several programs use GPU {gpu.index}", f"sudo nvidia-smi -i {handle(gpu)} -c 0")
        for gpu in alone
    )
    if sharing is not None:
        cause = (
            "Jobs are to share GPUs (the setting gpu_sharing), and these let in one program at a time: the "
            'second job ends with "all CUDA-capable devices are busy or unavailable".'
        )
        return warning(cause, *words, fix=fix)
    cause = (
        "These GPUs let in one program at a time: the second task of a job on one of them ends with "
        '"all CUDA-capable devices are busy or unavailable".'
    )
    return titled("GPUs let in one program at a time", note(cause, *words, fix=fix))


@on_nvidia
def _persistence(known: CheckInput) -> Verdict:
    """Whether data-centre cards are kept ready between jobs."""
    off = [gpu for gpu in cards(known) if gpu.persistence is False and is_data_centre(gpu)]
    if not off or in_container(known) or in_wsl(known):
        return fine()
    cause = (
        "Persistence mode is off: the driver initialises the GPU again for each job where no other "
        "program uses it, which takes seconds, and forgets its modes in between."
    )
    beside = note(cause, *(named(gpu) for gpu in off), fix=remedies.persistence(known.facts))
    return titled("Persistence mode is off", beside)


_TITLES = findings.TITLES
_FELL_OFF = r"NVRM: The NVIDIA GPU .{0,200}fallen off the bus"

CHECKS: tuple[Check, ...] = (
    Check(LOST, "driver", "Every NVIDIA GPU is on the bus", _TITLES[LOST], _on_the_bus,
          in_log=(LogWords(rf"{XID}79\b"), LogWords(_FELL_OFF))),
    Check(RESET, "driver", "No NVIDIA GPU needs a reset", _TITLES[RESET], _reset,
          because=(LOST, "DSH-NV-081"), in_log=(LogWords(rf"{XID}{RECOVERY}\b.*\bto 0x[146]\b"),)),
    Check(UNREADABLE, "driver", "Every NVIDIA GPU can be opened", "An NVIDIA GPU cannot be opened",
          _readable, because=("DSH-NV-005", "DSH-NV-084", "DSH-NV-105", "DSH-NV-102", LOST, RESET)),
    Check(NO_INSTANCES, "driver", "Every GPU in MIG mode has instances", _TITLES[NO_INSTANCES],
          _instances),
    Check(NO_FABRIC, "driver", "The Fabric Manager has set up every GPU", _TITLES[NO_FABRIC],
          _fabric, because=("DSH-NV-001",)),
    Check(PROHIBITED, "driver", "Every NVIDIA GPU lets programs compute", _TITLES[PROHIBITED],
          _prohibited),
    Check(EXCLUSIVE, "driver", "No GPU is kept to one program at a time",
          "GPUs let in one program at a time, and jobs are to share them", _exclusive),
    Check(PERSISTENCE_OFF, "driver", "The NVIDIA driver stays ready between jobs",
          "Persistence mode is off", _persistence),
)  # fmt: skip
