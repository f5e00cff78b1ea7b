"""Words that others explain better."""

from __future__ import annotations

from dshpc_setup.pasted.signs.sign import sign

REST = (
    sign(
        "DK-072 DK-081 HO-008 HO-009 SL-027",
        r"\A(?!.*(?:/sys/fs/cgroup|inotify)).*?(no space left on device|disk quota exceeded)",
    ),
    sign(
        "NV-081 NV-020",
        r"\bXid(?: errors?| codes?)?[ :=#(]{1,3}(?:PCI:[\w:.]{1,20}\)?: ?)?\d{1,3}\b",
    ),
    sign(
        "NV-101 NV-019",
        r"\bSXid(?: errors?| codes?)?[ :=#(]{1,3}(?:PCI:[\w:.]{1,20}\)?: ?)?\d{4,6}\b",
    ),
    sign("DK-017 NV-001 NV-029", "nvidia-persistenced/socket: no such file"),
    sign(
        "SL-012 SL-014", r"\bPARTITION AVAIL .{1,2000} ((?:drain|drained|drng|draining)[*~#@]? \S+)"
    ),
    sign("SL-018 SL-010", r"\bNODES PARTITION .{1,4000} unknown\* "),
    sign("SL-018 SL-012", r"\bPARTITION AVAIL .{1,2000} (down[*~#]? \S+)"),
    sign("GP-001 NV-062 SL-022", r"\A\W{0,6}no GPUs? detected\W{0,6}(?:during setup)?\W{0,4}\Z"),
    sign("PT-001 SL-022 FI-010", r"\bGPU visible on host but not in container"),
    sign("SL-021 SL-022", r"\bcontainer built without GPU"),
    sign("NV-023 NV-001 NV-049", r"\bCUDA version mismatch\b"),
    sign("NV-080 NV-020 NV-081", r"\| +\d+ +ERR!", r"\bERR! +ERR! +ERR!"),
    sign("NV-080 NV-082", "unable to create CUDA context"),
    sign("NV-080 NV-062 NV-013", "failed to initialize nvml(?!: ?[a-z])"),
    sign(
        "DK-081 HO-008 DK-072",
        r"\bUse% Mounted on\b.{0,4000}\b(100% /(?:var(?:/lib(?:/docker|/containers)?)?)?)(?: |\Z)",
    ),
    sign("GP-001 SL-022", r"\bGPU count is 0\b"),
    sign(
        "SL-022 PT-050 NV-062",
        r"\bno (?:(?:usable|supported|compatible|suitable|nvidia|amd|cuda|rocm) )*"
        r"GPUs?(?: devices?)? (?:(?:was|were|is|are) )?(?:found|detected|discovered|available)\b",
        r"\bGPU (?:is |was )?not (?:found|detected)\b",
    ),
)
