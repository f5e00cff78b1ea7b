"""Intel in data. It has no container toolkit."""

from __future__ import annotations

from dshpc_setup.gpu_vendors import Descriptor, Image, Nodes, Python, Record, Slurm, Variables

DESCRIPTOR = Descriptor(
    name="intel",
    label="Intel",
    order=3,
    pci=0x8086,
    modules=("i915", "xe"),
    evidence=("intel", "intel-device"),
    nodes=Nodes(
        own=r"/dev/dri/renderD\d+",
        files={"/dev/dri": r"renderD\d+"},
        glob="/dev/dri/renderD*",
        top=r"dxg|dri",
        looked_at="/dev/kfd /dev/dri",
    ),
    first_evidence="intel",
    # Level Zero takes an empty list for all, and skips a number that it has not
    variables=Variables(visible="ZE_AFFINITY_MASK", none="65535"),
    slurm=Slurm("intel_gpu_env"),
    image=Image(("libze1",)),
    python=Python(r"\+xpu\b"),
    record=Record(
        programs=("xpu-smi",),
        variables=("ZE_AFFINITY_MASK",),
        modules=("i915", "xe"),
        nodes=r"accel",
    ),
    tools=("xpu-smi",),
    list_command="ls -l /dev/dri",
    findings=("DSH-GP-020", "DSH-GP-021"),
    kernel_log=(r"\b(?:i915|xe)\b.{0,200}GPU HANG|\bxe\b.{0,200}(?:Engine reset: |Timedout job: )"),
)
