"""What an image wants against what driver and GPUs offer, before anything is run. Pure.

An image says it in its environment. `error`: the toolkit refuses to start it, or CUDA cannot work in
it. `warn`: it starts, and a part of it may not work.

Sources: nvidia-container-toolkit, internal/config/image (legacy images, NVIDIA_DISABLE_REQUIRE,
visible devices); `cuda` and `requirements` name theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.passthrough import cuda, findings, requirements
from dshpc_setup.passthrough.handover import Mechanism
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.passthrough.requirements import Offer, Requirement
from dshpc_setup.versions import at_least, numbers

Severity = Literal["error", "warn"]

_JIT_CDI_SINCE = "1.18"  # of the toolkit
_REQUEST_BY_CDI_SINCE = "29.2"  # of Docker
_REQUIRE = "NVIDIA_REQUIRE_"
_REQUIRE_CUDA = "NVIDIA_REQUIRE_CUDA"
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))  # as Go's strconv.ParseBool
_TORCH_ARCH = re.compile(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", re.ASCII)


@dataclass(frozen=True)
class Needs:
    """What an image's environment says that it needs."""

    cuda: str | None = None  # what it was made with, else the least that it demands: "12.4.1"
    made_with: str | None = None  # CUDA_VERSION alone
    requirements: tuple[Requirement, ...] = ()  # all of them must hold
    unchecked: bool = False  # NVIDIA_DISABLE_REQUIRE: the toolkit does not look
    capabilities: tuple[str, ...] | None = None  # None: not said, the toolkit's default
    visible: str | None = None
    torch: tuple[str, ...] = ()  # TORCH_CUDA_ARCH_LIST


@dataclass(frozen=True)
class Unmet:
    """Something that the image wants and does not get here."""

    cause: Cause
    severity: Severity


def needs(env: Mapping[str, str]) -> Needs:
    """Read the environment of an image; never raises."""
    version = env.get("CUDA_VERSION", "")
    wanted = [
        requirements.parse(env[name])
        for name in sorted(env)
        if name.startswith(_REQUIRE) and not name.startswith(f"{_REQUIRE}JETPACK")
    ]
    if version and not env.get(_REQUIRE_CUDA):  # a "legacy" image: its version is the requirement
        wanted.append(requirements.parse(f"cuda>={_major_minor(version) or version.strip()}"))
    made_with = version.strip().removeprefix("v") if numbers(version) else None
    named = next(filter(None, (item.least_cuda for item in wanted)), None)
    listed = env.get("NVIDIA_DRIVER_CAPABILITIES", "")
    return Needs(
        cuda=made_with or named,
        made_with=made_with,
        requirements=tuple(wanted),
        unchecked=env.get("NVIDIA_DISABLE_REQUIRE", "") in _TRUE,
        capabilities=tuple(part.strip() for part in listed.split(",")) if listed.strip() else None,
        visible=env.get("NVIDIA_VISIBLE_DEVICES"),
        torch=tuple(re.split(r"[\s;,]+", env.get("TORCH_CUDA_ARCH_LIST", "").strip(" ;,"))),
    )


def unmet(
    env: Mapping[str, str],
    facts: HostFacts,
    gpus: tuple[GpuDevice, ...],
    *,
    enforced: bool = True,
) -> tuple[Unmet, ...]:
    """What the image wants and these GPUs or their driver do not offer, errors first.

    () where nothing is known to be wrong, and for GPUs of other vendors. `enforced`: by a mechanism
    that refuses an image whose NVIDIA_REQUIRE_* do not hold; a CDI device does not look at them.
    """
    cards = tuple(gpu for gpu in gpus if gpu_vendors.has_cuda(gpu.vendor))
    if not cards:
        return ()
    wanted = needs(env)
    refused = _refused(wanted, facts, cards) if enforced and not wanted.unchecked else None
    found = [refused] if refused else list(_cuda(wanted, facts, cards))
    found += [*_capability(wanted, facts, cards), *_torch(wanted, cards), *_handed(wanted, facts)]
    return tuple(sorted(found, key=lambda item: item.severity != "error"))


def enforces(facts: HostFacts, mechanism: Mechanism) -> bool:
    """Whether this mechanism refuses an image whose NVIDIA_REQUIRE_* do not hold.

    CDI does not look at them, nor do the runtime from toolkit 1.18 on and --gpus from Docker 29.2 on
    where they go by CDI (nvidia-container-toolkit, issue 1470). Where that is not known the engine is
    asked itself: it refuses within a second.
    """
    if mechanism == "runtime":
        installed = remedies.toolkit(facts, "nvidia")
        if installed is None:
            return False
        # Before 1.10 there was no nvidia-ctk to ask for the version
        told = installed.ctk is None or numbers(installed.version) is not None
        old = told and not at_least(installed.version, _JIT_CDI_SINCE)
        return installed.mode in ("legacy", "csv") or (installed.mode in (None, "auto") and old)
    by_cdi = at_least(facts.engine.server_version, _REQUEST_BY_CDI_SINCE)
    return mechanism == "device-request" and not by_cdi


# -- NVIDIA_REQUIRE_* -------------------------------------------------------------------------------


def _refused(wanted: Needs, facts: HostFacts, cards: tuple[GpuDevice, ...]) -> Unmet | None:
    """The first requirement that the toolkit would refuse to start the image for."""
    have, driver = cuda.offered(facts), cuda.driver_version(facts)
    for card in cards:
        offer = Offer(have, card.driver_version or driver, card.compute, cuda.brands(card.name))
        for requirement in wanted.requirements:
            verdict = requirements.holds(requirement, offer)
            if verdict == "malformed":
                says = f"the image's requirement cannot be read: {_short(requirement.text)}"
                fix = remedies.without_requirement(facts)
                return Unmet(Cause(findings.REQUIREMENT_UNREADABLE, says, fix), "error")
            if verdict == "no":
                return Unmet(_not_met(requirement, facts, card), "error")
    return None


def _not_met(requirement: Requirement, facts: HostFacts, card: GpuDevice) -> Cause:
    least, have = requirement.least_cuda, cuda.offered(facts)
    if least and have:
        driver = cuda.driver_version(facts)
        says = f"the image needs CUDA {least}, and the driver{_after(driver)} offers CUDA {have}"
        return Cause(findings.IMAGE_TOO_NEW, says, remedies.matching_image(facts))
    says = f"the image demands {_short(requirement.text)}, which {_label(card)} does not meet"
    return Cause(findings.REQUIREMENT_UNMET, says, remedies.without_requirement(facts))


# -- CUDA and the driver ----------------------------------------------------------------------------


def _cuda(wanted: Needs, facts: HostFacts, cards: tuple[GpuDevice, ...]) -> Iterator[Unmet]:
    """How an image that is not refused runs on a driver that offers an older CUDA."""
    have, driver = cuda.offered(facts), cuda.driver_version(facts)
    if have is None or wanted.cuda is None:
        return
    far = cuda.reach(wanted.cuda, have, driver)
    older = f"the image is made for CUDA {wanted.cuda}, and the driver{_after(driver)} offers CUDA {have}"
    if far == "minor":
        says = f"{older}: what is compiled at run time (PTX) does not work"
        yield Unmet(Cause(findings.IMAGE_TOO_NEW, says, remedies.matching_image(facts)), "warn")
    elif far == "forward":
        yield _forward(wanted, facts, cards, older)
    elif far == "no":
        yield Unmet(Cause(findings.IMAGE_TOO_NEW, older, remedies.matching_image(facts)), "error")


def _forward(wanted: Needs, facts: HostFacts, cards: tuple[GpuDevice, ...], older: str) -> Unmet:
    """A newer major version: only by cuda-compat libraries, which want certain cards."""
    without = [card for card in cards if cuda.is_consumer(card)]
    finding = findings.NO_FORWARD_COMPATIBILITY
    fix = remedies.matching_image(facts)
    if without:
        says = f"{older}: libraries that bridge this do not work with {_label(without[0])}"
        return Unmet(Cause(finding, says, fix), "warn" if wanted.unchecked else "error")
    says = f"{older}: it works only where the image has libraries (cuda-compat) that bridge this"
    if not all(cuda.is_data_centre(card) for card in cards):
        says += ", and the card is one that they are made for"
    return Unmet(Cause(finding, says, fix), "warn")


# -- compute capability -----------------------------------------------------------------------------


def _capability(wanted: Needs, facts: HostFacts, cards: tuple[GpuDevice, ...]) -> Iterator[Unmet]:
    """Warnings alone: an image may carry code that was made by another CUDA than its own."""
    if wanted.made_with is None:
        return
    for card in _each_capability(cards):
        capability = card.compute or ""
        what = f"{_label(card)} (compute capability {capability})"
        if cuda.knows(wanted.made_with, capability) is False:
            says = (
                f"{what} is newer than the image's CUDA {wanted.made_with}: programs fail with "
                "'no kernel image' unless they bring PTX"
            )
            fix = remedies.newer_image(facts)
            yield Unmet(Cause(findings.GPU_NEWER_THAN_IMAGE, says, fix), "warn")
        elif (lowest := cuda.dropped(wanted.made_with, capability)) is not None:
            says = f"{what} is too old for the image's CUDA {wanted.made_with}, which begins at {lowest}"
            fix = remedies.older_image(facts)
            yield Unmet(Cause(findings.GPU_TOO_OLD_FOR_IMAGE, says, fix), "warn")


def _torch(wanted: Needs, cards: tuple[GpuDevice, ...]) -> Iterator[Unmet]:
    """TORCH_CUDA_ARCH_LIST: the capabilities that the image's PyTorch, or its extensions, are made for."""
    made = [_TORCH_ARCH.fullmatch(item) for item in wanted.torch]
    if not all(made):  # names such as Ampere, or nothing at all
        return
    listed = [(int(found[1]), int(found[2]), found[3], bool(found[4])) for found in made if found]
    for card in _each_capability(cards):
        have = numbers(card.compute) or ()
        if len(have) < 2 or any(_runs(item, have[0], have[1]) for item in listed):
            continue
        newer = any((major, minor) < have[:2] for major, minor, _, _ in listed)
        finding = findings.GPU_NEWER_THAN_IMAGE if newer else findings.GPU_TOO_OLD_FOR_IMAGE
        says = (
            f"the image's PyTorch is made for compute capability {' '.join(wanted.torch)}, "
            f"and {_label(card)} has {card.compute}"
        )
        yield Unmet(Cause(finding, says), "warn")


def _runs(made: tuple[int, int, str, bool], major: int, minor: int) -> bool:
    """Code of the same major version and no later minor one; "a" is for one alone, PTX for all later."""
    own_major, own_minor, kind, ptx = made
    if ptx and kind == "" and (own_major, own_minor) <= (major, minor):
        return True
    if kind == "a":
        return (own_major, own_minor) == (major, minor)
    return own_major == major and own_minor <= minor


def _each_capability(cards: tuple[GpuDevice, ...]) -> tuple[GpuDevice, ...]:
    """One card for each compute capability."""
    first: dict[str, GpuDevice] = {}
    for card in cards:
        if card.compute:
            first.setdefault(card.compute, card)
    return tuple(first.values())


# -- what the toolkit is to hand over ---------------------------------------------------------------


def _handed(wanted: Needs, facts: HostFacts) -> Iterator[Unmet]:
    """Variables that our own containers set, and a plain `docker run` takes from the image."""
    listed = wanted.capabilities
    if listed is not None and not {"all", "compute"} & set(listed):
        says = (
            f"the image sets NVIDIA_DRIVER_CAPABILITIES={','.join(listed)}, without compute: "
            "CUDA is missing in containers that do not set it themselves"
        )
        fix = remedies.driver_capabilities(facts)
        yield Unmet(Cause(findings.NO_COMPUTE_CAPABILITY, _short(says, 300), fix), "warn")
    if wanted.visible is not None and wanted.visible.strip() in ("", "void", "none"):
        says = (
            f"the image sets NVIDIA_VISIBLE_DEVICES={wanted.visible.strip() or 'to nothing'}: by the "
            "nvidia runtime it gets no GPU unless the container sets it"
        )
        yield Unmet(Cause(findings.IMAGE_HIDES_GPUS, says, remedies.visible_devices(facts)), "warn")


def _major_minor(version: str) -> str | None:
    found = numbers(version)
    return None if found is None else ".".join(str(part) for part in (*found, 0)[:2])


def _after(driver: str | None) -> str:
    return f" {driver}" if driver else ""


def _label(card: GpuDevice) -> str:
    return card.name or f"GPU {card.index}"


def _short(text: str, most: int = 80) -> str:
    words = " ".join(text.split())
    return words if len(words) <= most else f"{words[: most - 3]}..."
