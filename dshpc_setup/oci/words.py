"""What is said of an image that cannot be had, and what to do."""

from __future__ import annotations

import shlex

from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.oci.model import ImageError

_FORMS = (
    "Give an OCI archive or folder, what docker save writes, a SIF of Apptainer's, or a name that the "
    "engine has: dshpc run --image FILE|NAME -- COMMAND"
)


def told(error: ImageError, path: str, machine: str) -> DshpcError:
    """`path`: as the user named it; `machine`: this machine's processor."""
    return _of_use(error, path) or _of_kind(error, path, machine) or _of_content(error, path)


def _of_use(error: ImageError, path: str) -> DshpcError | None:
    """What was given is not what was meant."""
    match error.fault:
        case "absent":
            why = "It is neither a file here nor a name that the engine has."
            return _usage(f"There is no image {path}.", why, _FORMS)
        case "no-image":
            return _usage(f"{path} is not an image that jobs can run in.", error.what, _FORMS)
        case "several":
            step = "Save one alone: docker save NAME -o FILE"
            return _usage(f"{path} holds several images, or none that is meant.", error.what, step)
    return None


def _of_kind(error: ImageError, path: str, machine: str) -> DshpcError | None:
    """A right image, and none that can be used here."""
    what, named = error.what, shlex.quote(path)
    match error.fault:
        case "architecture":
            return _error(
                f"The image {path} is for another processor: {what}.",
                f"This machine is {machine}.", f"Use one for {machine}.",
            )  # fmt: skip
        case "system":
            return _error(f"The image {path} is not of Linux: {what}.", "", "Use one of Linux.")
        case "encrypted":
            return _error(f"The image {path} is encrypted.", "", "Decrypt it first.")
        case "file-system":
            return _error(
                f"The SIF {path} holds no squashfs, which is all that is unpacked here.", "",
                f"Rebuild it: apptainer build NEW.sif {named}",
            )  # fmt: skip
        case "no-program":
            install = Fix("Install it", "sudo apt-get install squashfs-tools")
            return _error(
                f"The image {path} is a SIF, and {what} is missing, which unpacks it.", "", install
            )
    return None


def _of_content(error: ImageError, path: str) -> DshpcError:
    what, again = error.what, "Make or fetch it again."
    room = Fix("See what is full", "df -h .", step="look")
    match error.fault:
        case "truncated":
            return _error(f"The image {path} is cut off or damaged.", what, again)
        case "damaged":
            brief = f"The image {path} is damaged: a layer is not what its digest says."
            return _error(brief, what, again)
        case "unsafe":
            why = f"This leads out of its folder: {what}"
            return _error(f"The image {path} is not safe to unpack.", why, "Use another image.")
        case "too-large":
            why = f"Packed as small as it is, it is no root filesystem. It was left at {what}."
            return _error(f"The image {path} becomes far too large.", why, "Use another image.")
        case "no-room":
            why = f"It is unpacked in the work folder. {what}"
            return _error(f"There is no room to unpack the image {path}.", why, room)
        case "refused":
            return _error(f"The root filesystem of {path} could not be unpacked.", what, again)
    return _error(f"The image {path} could not be unpacked.", what, room)


def _error(brief: str, details: str, *steps: str | Fix) -> DshpcError:
    return DshpcError(brief, details, steps)


def _usage(brief: str, details: str, step: str) -> DshpcError:
    return DshpcError(brief, details, (step,), Exit.USAGE)
