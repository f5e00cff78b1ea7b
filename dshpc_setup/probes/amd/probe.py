"""AMD GPUs: the kernel's own tree (KFD) first, since it needs no library and knows partitions.

Then the graphics driver's attributes (DRM), AMD's library for names, and amd-smi and rocm-smi for
what is still missing.
"""

from __future__ import annotations

from dshpc_setup.facts import Gpus
from dshpc_setup.machine import Machine
from dshpc_setup.probes import pci, unseen
from dshpc_setup.probes.amd import signs as amd_signs
from dshpc_setup.probes.gpus import in_words
from dshpc_setup.probes.platform import in_container
from dshpc_setup.probes.trace import Found, Trace


def probe(machine: Machine, deadline_s: float) -> Found[Gpus]:
    """AMD's GPUs, and why there is none; only `absent` means that there are zero."""
    look = Trace(machine)
    if amd_signs.there(look):
        from dshpc_setup.probes.amd import facts as amd_facts

        return amd_facts.probe(machine, deadline_s)
    fact = unseen.sure(look, Gpus("absent"), container=in_container(machine))
    if fact.state != "absent":
        look.saw("kfd", fact.state, amd_signs.KFD[0], fact.detail)
        look.concluded("gpus amd", in_words(fact), (pci.ROOT, "may not be read"))
        return look.found(fact)
    look.saw("kfd", "absent", amd_signs.KFD[0], "no AMD GPU node")
    look.concluded(
        "gpus amd",
        "no GPU",
        ("KFD", "there is no such tree"),
        (pci.ROOT, "no AMD card"),
        (amd_signs.DRM, "no AMD card"),
        instead=[("amd-smi, rocm-smi", "neither is installed")],
    )
    return look.found(fact)
