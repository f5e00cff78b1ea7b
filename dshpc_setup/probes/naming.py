"""What a GPU is called in `--gres=gpu:<type>:1`, from the name that its maker gave it."""

from __future__ import annotations

import re

# Words that do not tell one model from another: maker, brand, form factor, memory technology, and
# what a driver calls a GPU that it has no name for ("NVIDIA Graphics Device").
_NOISE = frozenset(
    "nvidia corporation amd ati intel tesla geforce quadro instinct radeon graphics arc "
    "data center gpu accelerator tm r c generation nvgpu pcie pci oam hbm hbm2 hbm2e hbm3 hbm3e "
    "nvl sxm sxm2 sxm3 sxm4 sxm5 sxm6 series edition device".split()
)
_MEMORY = re.compile(r"\d+(?:gb?|mb|gib)")
_MOST = 40


def slurm_type(name: str | None, fallback: str = "gpu") -> str:
    """A short lower-case model name: "NVIDIA H100 80GB HBM3" -> "h100".

    Slurm refuses a type that is a number alone, so that one gets a "gpu_" before it; a name of
    which nothing is left is `fallback`.
    """
    words = re.findall(r"[a-z0-9]+", (name or "").lower())
    kept = [word for word in words if word not in _NOISE and not _MEMORY.fullmatch(word)]
    text = "_".join(kept)[:_MOST].strip("_")
    if not text:
        return fallback
    return f"gpu_{text}" if text.replace("_", "").isdigit() else text


def profile_of(name: str | None, slices: object = None) -> str | None:
    """A MIG instance's profile: of its name's end ("... MIG 1g.10gb"), else of its slices.

    "+" is not for Slurm's type names: "1g.10gb+me" becomes "1g.10gb.me". `slices` are GPU slices,
    compute slices and memory in MiB.
    """
    match = re.search(r"\bMIG\s+((?:\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb(?:[+.-]\w+)*)", name or "")
    if match:
        return re.sub(r"[^a-z0-9.]", ".", match[1].lower())
    if not isinstance(slices, (list, tuple)) or len(slices) != 3:
        return None
    if not all(isinstance(item, int) and 0 < item < 1 << 31 for item in slices):
        return None
    gpu, compute, mib = slices
    part = f"{compute}c." if compute != gpu else ""
    return f"{part}{gpu}g.{-(-mib // 1024)}gb"
