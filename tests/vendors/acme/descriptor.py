"""Acme in data."""

from __future__ import annotations

from dshpc_setup.gpu_vendors import (
    Descriptor,
    Image,
    Nodes,
    Python,
    Record,
    Slurm,
    Toolkit,
    Variables,
)

DESCRIPTOR = Descriptor(
    name="acme",
    label="Acme",
    order=99,
    pci=0x1ACE,
    modules=("acme",),
    evidence=("acme",),
    nodes=Nodes(
        own=r"/dev/acme\d+",
        shared=("/dev/acmectl",),
        files={"/dev": r"acme.*"},
        glob="/dev/acme[0-9]*",
        top=r"acme\w*",
        looked_at="/dev/acmectl",
    ),
    variables=Variables("ACME_VISIBLE", none="none", uuids="ACME_UUIDS"),
    slurm=Slurm(compute_prefix="acme"),
    image=Image(("libacme1",)),
    python=Python(r"\+acme\d"),
    record=Record(
        ("acme-smi",), ("ACME_VISIBLE",), ("acme",), ("/sys/class/acme",), r"acme", ("anvil",)
    ),
    toolkit=Toolkit(
        label="Acme Container Kit",
        programs={"runtime": "acme-runtime", "ctk": "acme-ctk"},
        version="version",
        driver_signs=("/dev/acmectl",),
        spec_path="/etc/cdi/acme.yaml",
        needed=False,
    ),
    runtimes=("acme",),
    capabilities={"ACME_CAPABILITIES": "compute"},
    list_command="acme-smi list",
    findings=("DSH-AC-",),
    kernel_log=r"\bacme\d+: ",
)
