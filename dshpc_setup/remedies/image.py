"""Steps for what an image or a compose file asks for. Pure."""

from __future__ import annotations

from dshpc_setup.errors import Fix, configure
from dshpc_setup.facts import HostFacts
from dshpc_setup.remedies.driver import newer_driver
from dshpc_setup.remedies.engine import compose_v2
from dshpc_setup.remedies.family import Fixes, toolkit
from dshpc_setup.remedies.of_vendors import FIRST

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "riscv64": "riscv64"}


def matching_image(facts: HostFacts) -> Fixes:
    """An image for an older CUDA, or a driver for a newer one."""
    offered = facts.gpus.cuda_version
    older = f"CUDA {offered} or older" if offered else "an older CUDA"
    return (Fix(f"Use an image that is made for {older}"), *newer_driver(facts))


def newer_image(_: HostFacts) -> Fixes:
    """Code for a GPU that came after the image."""
    return (Fix("Use a newer image, whose CUDA knows this GPU"),)


def older_image(_: HostFacts) -> Fixes:
    """Code for a GPU that newer versions of CUDA have left behind."""
    return (Fix("Use an image with an older CUDA, which still knows this GPU"),)


def visible_devices(_: HostFacts) -> Fixes:
    """Which GPUs NVIDIA's runtime hands over is said by a variable."""
    return (Fix("Set NVIDIA_VISIBLE_DEVICES=all for the container, or the GPUs that it may see"),)


def without_requirement(facts: HostFacts) -> Fixes:
    """What the image demands in NVIDIA_REQUIRE_* does not hold here."""
    return (
        *matching_image(facts),
        Fix(
            "Or, where you know that the image runs anyway, switch the check off for the "
            "container: NVIDIA_DISABLE_REQUIRE=1",
            step="alternative",
        ),
    )


def driver_capabilities(_: HostFacts) -> Fixes:
    """What NVIDIA's toolkit is to bring into the container."""
    return (
        Fix(
            "Set NVIDIA_DRIVER_CAPABILITIES=compute,utility for the container; where the toolkit refuses "
            "that, see what it allows",
            "grep -n supported-driver-capabilities /etc/nvidia-container-runtime/config.toml",
        ),
    )


def missing_capability(facts: HostFacts) -> Fixes:
    """A library that the toolkit did not hand over, though the container asked for its capability."""
    installed = toolkit(facts, FIRST)
    if installed is not None and installed.capabilities:
        return driver_capabilities(facts)
    see = Fix(
        "See whether this machine has both libraries",
        "ldconfig -p | grep -E 'libcuda|nvidia-ml'",
        step="look",
    )
    return (see, *_where_missing(facts))


def _where_missing(facts: HostFacts) -> Fixes:
    """Debian has CUDA's library in a package of its own."""
    if facts.platform.os_id == "debian":
        command = "sudo apt-get update && sudo apt-get install -y libcuda1 libnvidia-ml1"
        return (Fix("Install what is missing", command),)
    return (Fix("Where one is missing, install the whole driver and not only a part of it"),)


def image_without_driver(_: HostFacts) -> Fixes:
    """The image carries files that belong to the machine's driver."""
    return (
        Fix(
            "Build the image without the driver: leave out packages such as libcuda1, libnvidia-compute "
            "and nvidia-utils, and do not build or commit it in a container that has GPUs"
        ),
    )


def image_for_this_processor(facts: HostFacts) -> Fixes:
    """The image is for another type of processor."""
    arch = facts.engine.arch or facts.platform.arch
    name = _ARCHITECTURES.get(arch or "", arch)
    if name is None:
        return (Fix("Use an image that is made for this machine's processor"),)
    return (Fix(f"Use an image that is made for linux/{name}"),)


def load_image(_: HostFacts) -> Fixes:
    """The image is not on this engine, and nothing is pulled unasked."""
    return (
        Fix("Fetch the image first: docker pull, or docker load for a file"),
        configure("Or make the project's own base image", step="alternative"),
    )


def other_compose_keys(facts: HostFacts) -> Fixes:
    """A compose file with keys that this compose does not know."""
    return (
        *compose_v2(facts),
        Fix(
            "Or write the file in the form that this compose knows",
            "dshpc compose patch --help",
            step="alternative",
        ),
    )
