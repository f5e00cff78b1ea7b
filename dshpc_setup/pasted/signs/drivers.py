"""What NVIDIA's driver, its installer and the kernel say."""

from __future__ import annotations

from dshpc_setup.pasted.signs.sign import sign

LOST = (
    sign(
        "NV-020 NV-081",
        "fallen off the bus",
        r"\bGPU is lost\b",
        "NV_ERR_GPU_IS_LOST",
        r"NVML_?ERROR_?GPU_?IS_?LOST",
        "NV_ERR_GPU_IN_FULLCHIP_RESET",
        "rpcSendMessage failed with status 0x0000000f",
        r"\bNVIDIA Corporation .{0,120}\(rev ff\)",
    ),
    sign(
        "NV-021 NV-081",
        r"\bGPU requires (?:a )?reset\b",
        "NV_ERR_RESET_REQUIRED",
        "NVML_?ERROR_?RESET_?REQUIRED",
    ),
)
"""A card that is gone: whatever else a log says of it comes from that."""


DRIVER = (
    sign("NV-080 NV-022", r"\bRIP: \S{1,120} \[nvidia(?:_\w{1,20})?\]"),
    sign("NV-001 PT-052 DK-026", "API mismatch: the client has (?:the )?version"),
    sign(
        "NV-001 DK-026 PT-052",
        "driver/library version mismatch",
        "LIB_?RM_?VERSION_?MISMATCH",
        r"\bNVML_?ERROR_?LibRmVersionMismatch",
    ),
    sign(
        "NV-001 PT-052 NV-023",
        "unsupported display driver ?/ ?cuda driver combination",
        "system_?driver_?mismatch",
    ),
    sign(
        "NV-002 NV-062",
        "NVIDIA probe routine was not called",
        "nouveau kernel driver is currently in use",
    ),
    sign(
        "NV-004 NV-062",
        r"could not insert '?nvidia[\w-]*'?: (?:key was rejected|required key not)",
    ),
    sign("NV-004 NV-002 NV-084 NV-062", "unable to load the kernel module '?nvidia"),
    sign(
        "NV-003 NV-020 NV-080",
        r"\brm_?init_?adapter\b.{0,40}failed",
        "cannot initialize GSP firmware",
        "failed to wait for GFW",
        r"direct firmware load for nvidia/\S{1,60}gsp",
    ),
    sign(
        "NV-020 NV-003",
        "unable to determine the device handle for gpu.{0,40}: unknown error",
        also=r"\bPCIe Bus Error\b|\bAER: ",
    ),
    sign(
        "NV-003 NV-020 NV-080",
        "unable to determine the device handle for gpu.{0,40}: unknown error",
    ),
    sign("NV-022 NV-081", r"\btask nvidia\S{0,30} blocked for more than"),
    sign(
        "NV-018",
        r"\bMIG\b.{0,60}\bno (?:instances|MIG devices)\b",
        "no MIG devices (?:were )?found",
    ),
)
