"""What is said of an image that cannot be had, and what to do."""

from __future__ import annotations

import shlex

from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.oci.model import ImageError

_FORMS = (
    "Give an OCI archive or folder, what docker save writes, a SIF of Apptainer's, or a name that the engine has: "
    "dshpc run --image FILE|NAME -- COMMAND"
)


def told(error: ImageError, path: str, machine: str) -> DshpcError:
    """`path`: as the user named it; `machine`: this machine's processor."""
    what = error.what
    again = ("Make or fetch it again.",)
    room = Fix("See what is full", "df -h .", step="look")
    match error.fault:
        case "absent":
            return _usage(
                f"There is no image {path}.",
                "It is neither a file here nor a name that the engine has.",
                _FORMS,
            )
        case "no-image":
            return _usage(f"{path} is not an image that jobs can run in.", what, _FORMS)
        case "several":
            return _usage(
                f"{path} holds several images, or none that is meant.", what,
                "Save one alone: docker save NAME -o FILE",
            )  # fmt: skip
        case "architecture":
            return DshpcError(
                f"The image {path} is for another processor: {what}.", f"This machine is {machine}.",
                (f"Use one for {machine}.",),
            )  # fmt: skip
        case "system":
            return DshpcError(
                f"The image {path} is not of Linux: {what}.", "", ("Use one of Linux.",)
            )
        case "truncated":
            return DshpcError(f"The image {path} is cut off or damaged.", what, again)
        case "damaged":
            return DshpcError(
                f"The image {path} is damaged: a layer is not what its digest says.", what, again
            )
        case "unsafe":
            return DshpcError(
                f"The image {path} is not safe to unpack.", f"This leads out of its folder: {what}",
                ("Use another image.",),
            )  # fmt: skip
        case "too-large":
            return DshpcError(
                f"The image {path} becomes far too large.",
                f"Packed as small as it is, it is no root filesystem. It was left at {what}.",
                ("Use another image.",),
            )
        case "no-room":
            return DshpcError(
                f"There is no room to unpack the image {path}.",
                f"It is unpacked in the work folder. {what}",
                (room,),
            )
        case "packing":
            return DshpcError(
                f"The layers of {path} are packed by {what}, which is not unpacked here.", "",
                (f"Pack them by gzip: skopeo copy --dest-compress-format gzip --dest-force-compress-format "
                 f"oci-archive:{shlex.quote(path)} oci-archive:NEW.tar",
                 "Or let an engine write it: docker save NAME -o FILE"),
            )  # fmt: skip
        case "encrypted":
            return DshpcError(f"The image {path} is encrypted.", "", ("Decrypt it first.",))
        case "file-system":
            return DshpcError(
                f"The SIF {path} holds no squashfs, which is all that is unpacked here.", "",
                ("Build it anew: apptainer build NEW.sif " + shlex.quote(path),),
            )  # fmt: skip
        case "no-program":
            return DshpcError(
                f"The image {path} is a SIF, and {what} is missing, which unpacks it.", "",
                (Fix("Install it", "sudo apt-get install squashfs-tools"),), Exit.INCOMPLETE,
            )  # fmt: skip
        case "refused":
            return DshpcError(f"The root filesystem of {path} could not be unpacked.", what, again)
        case "write":
            return DshpcError(f"The image {path} could not be unpacked.", what, (room,))


def _usage(brief: str, details: str, step: str) -> DshpcError:
    return DshpcError(brief, details, (step,), Exit.USAGE)
