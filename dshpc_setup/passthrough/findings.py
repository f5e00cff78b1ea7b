"""The findings about GPUs in containers: ids, and a title of a few words each.

The middle of an id says whose fault it is: NV driver or card of NVIDIA, AM those of AMD, DK engine,
toolkit, compose or image, PT what a test container showed. Up to 49 the number is that of the cause in
the catalogue of failures; from 50 on there is no such row.
"""

from __future__ import annotations

from collections.abc import Mapping

from dshpc_setup import problems

# Found by probes as well
VERSIONS_DIFFER = problems.VERSIONS_DIFFER
NO_INSTANCES = problems.NO_INSTANCES
NO_FABRIC = problems.NO_FABRIC
LOST = problems.LOST
RESET = problems.RESET
PROHIBITED = problems.PROHIBITED
LINUX_DRIVER_INSIDE = problems.LINUX_DRIVER_INSIDE
NO_KFD = problems.NO_KFD

# Driver and cards
NO_LIBRARY = "DSH-NV-006"
LOST_ON_RELOAD = "DSH-NV-013"
NO_UVM = "DSH-NV-015"
DRIVER_HANGS = "DSH-NV-022"
IMAGE_TOO_NEW = "DSH-NV-023"
NO_FORWARD_COMPATIBILITY = "DSH-NV-024"
GPU_NEWER_THAN_IMAGE = "DSH-NV-025"
NO_COMPUTE_CAPABILITY = "DSH-NV-027"
NO_WSL_GPU = "DSH-NV-030"
DRIVER_NOT_LOADED = "DSH-NV-062"
GPU_TOO_OLD_FOR_IMAGE = "DSH-NV-078"
DRIVER_ERROR = "DSH-NV-080"
AMD_GROUP = "DSH-AM-038"

# Engine, toolkit, compose, image
NO_TOOLKIT = "DSH-DK-007"
NOT_RESTARTED = "DSH-DK-008"
RUNTIME_NOT_REGISTERED = "DSH-DK-009"
SNAP = "DSH-DK-010"
ROOTLESS = "DSH-DK-011"
NO_CGROUPS = "DSH-DK-012"
SELINUX = "DSH-DK-014"
NO_CDI_SPEC = "DSH-DK-016"
STALE_CDI_SPEC = "DSH-DK-017"
DRIVER_IN_IMAGE = "DSH-DK-026"
DESKTOP_CDI = "DSH-DK-032"
DESKTOP_VM = "DSH-DK-033"
REMOTE_ENGINE = "DSH-DK-034"
PODMAN = "DSH-DK-035"
COMPOSE_TOO_OLD = "DSH-DK-036"
API_REFUSED = "DSH-DK-037"
CDI_OFF = "DSH-DK-060"
ENGINE_WITHOUT_CDI = "DSH-DK-061"
TOOLKIT_MODE = "DSH-DK-063"
TOOLKIT_BROKEN = "DSH-DK-064"
UNKNOWN_GPU = "DSH-DK-065"
NO_NODE = "DSH-DK-066"
ENGINE_MAY_NOT_OPEN = "DSH-DK-067"
NO_MOUNT_SOURCE = "DSH-DK-068"
OTHER_PROCESSOR = "DSH-DK-069"
NO_IMAGE = "DSH-DK-070"
DISK_FULL = "DSH-DK-072"
ENGINE_GONE = "DSH-DK-073"
ENGINE_DENIED = "DSH-DK-074"
CDI_SPEC_UNREADABLE = "DSH-DK-075"
REQUIREMENT_UNMET = "DSH-DK-076"
REQUIREMENT_UNREADABLE = "DSH-DK-077"
IMAGE_HIDES_GPUS = "DSH-DK-079"

# What the test container saw
FEWER_GPUS = "DSH-PT-050"
LIBRARY_DOES_NOT_LOAD = "DSH-PT-051"
LIBRARY_OF_ANOTHER_VERSION = "DSH-PT-052"
NODE_DENIED = "DSH-PT-053"
TEST_HUNG = "DSH-PT-054"
OTHER_GPUS = "DSH-PT-055"
IMAGE_WITHOUT_SHELL = "DSH-PT-056"
NODE_DOES_NOT_OPEN = "DSH-PT-057"
IMAGE_WITHOUT_GLIBC = "DSH-PT-058"
MORE_GPUS = "DSH-PT-059"

TITLES: Mapping[str, str] = {
    VERSIONS_DIFFER: "The NVIDIA driver was updated, and the old one is still loaded",
    NO_LIBRARY: "The NVIDIA driver's libraries are missing",
    LOST_ON_RELOAD: "Containers lose their GPUs when systemd reloads",
    NO_UVM: "/dev/nvidia-uvm is missing",
    NO_INSTANCES: "MIG is on, and there is no instance",
    NO_FABRIC: "The Fabric Manager has not come round to a GPU",
    LOST: "A GPU has fallen off the bus",
    RESET: "A GPU needs a reset",
    DRIVER_HANGS: "The NVIDIA driver does not answer",
    IMAGE_TOO_NEW: "The image needs a newer CUDA than the driver offers",
    NO_FORWARD_COMPATIBILITY: "The image's CUDA compatibility libraries do not work with this GPU",
    GPU_NEWER_THAN_IMAGE: "The GPU is newer than the image's CUDA",
    NO_COMPUTE_CAPABILITY: "The container gets the driver without CUDA",
    PROHIBITED: "A GPU's compute mode is Prohibited",
    NO_WSL_GPU: "WSL sees no GPU",
    LINUX_DRIVER_INSIDE: "A Linux driver lies inside WSL",
    DRIVER_NOT_LOADED: "The NVIDIA driver is not loaded",
    GPU_TOO_OLD_FOR_IMAGE: "The GPU is too old for the image's CUDA",
    DRIVER_ERROR: "The NVIDIA driver answers with an error",
    AMD_GROUP: "AMD's device nodes are closed to the container's user",
    NO_KFD: "/dev/kfd is missing",
    NO_TOOLKIT: "The GPU vendor's container toolkit is missing",
    NOT_RESTARTED: "The engine was not restarted since the toolkit was installed",
    RUNTIME_NOT_REGISTERED: "The vendor's runtime is not registered with the engine",
    SNAP: "Docker is a snap",
    ROOTLESS: "A rootless engine cannot use the toolkit's hook as it is",
    NO_CGROUPS: "The toolkit's no-cgroups is set on an engine that runs as root",
    SELINUX: "SELinux keeps the container from the GPU",
    NO_CDI_SPEC: "No CDI specification names the GPUs",
    STALE_CDI_SPEC: "The CDI specification is out of date",
    DRIVER_IN_IMAGE: "The image carries files of an NVIDIA driver",
    DESKTOP_CDI: "Docker Desktop has no CDI devices of these GPUs",
    DESKTOP_VM: "The engine's own system has no GPU",
    REMOTE_ENGINE: "The engine runs on another machine",
    PODMAN: "Podman hands over GPUs by CDI alone",
    COMPOSE_TOO_OLD: "Compose is too old for GPUs written this way",
    API_REFUSED: "Client and engine do not speak the same version of Docker's API",
    CDI_OFF: "CDI is switched off in the engine",
    ENGINE_WITHOUT_CDI: "The engine is too old for CDI",
    TOOLKIT_MODE: "The toolkit's mode does not allow --gpus",
    TOOLKIT_BROKEN: "The NVIDIA Container Toolkit does not work",
    UNKNOWN_GPU: "A GPU was asked for that is not there",
    NO_NODE: "A device node is missing",
    ENGINE_MAY_NOT_OPEN: "The engine may not use a device node",
    NO_MOUNT_SOURCE: "A file for the container is missing",
    OTHER_PROCESSOR: "The image is for another type of processor",
    NO_IMAGE: "The image is not on this engine",
    DISK_FULL: "The disk is full",
    ENGINE_GONE: "The engine does not answer any more",
    ENGINE_DENIED: "This user may not use the engine",
    CDI_SPEC_UNREADABLE: "The engine cannot read a CDI specification",
    REQUIREMENT_UNMET: "A requirement of the image does not hold here",
    REQUIREMENT_UNREADABLE: "A requirement of the image cannot be read",
    IMAGE_HIDES_GPUS: "The image asks for no GPU",
    FEWER_GPUS: "The container sees fewer GPUs than the machine has",
    LIBRARY_DOES_NOT_LOAD: "A driver library does not load in the container",
    LIBRARY_OF_ANOTHER_VERSION: "A driver library in the container is of another version",
    NODE_DENIED: "The user of jobs may not open a device node",
    TEST_HUNG: "The test container hung",
    OTHER_GPUS: "The container sees other GPUs than it was given",
    IMAGE_WITHOUT_SHELL: "The image cannot run the test",
    NODE_DOES_NOT_OPEN: "A device node does not open in the container",
    MORE_GPUS: "The container sees more GPUs than it was given",
    IMAGE_WITHOUT_GLIBC: "The image cannot load the driver: it has musl",
}
