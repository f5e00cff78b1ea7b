# ruff: noqa: E501  (what programs print is kept as it was)
"""Kernel logs as people posted them, each with its link, the machine they are read on, and what they tell.

What programs print is data and is kept as it was, times included. A link is where the text was met; those
without one are of the named source file, with made-up addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

NVIDIA = "workstation-rtx4090-no-driver"
CARD = "workstation-rtx4090"
AMD = "mi300x-no-driver"


@dataclass(frozen=True)
class Posted:
    link: str
    machine: str
    text: str
    finding: str | None  # that is a warning or an error because of it; None: none is
    words: str = ""  # of what is told


POSTED = (
    Posted("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/322", NVIDIA, """\
[ 1157.036170] PKCS#7 signature not signed with a trusted key
[ 1157.043851] nvidia-nvlink: Nvlink Core is being initialized, major device number 237
[ 1157.046099] NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db5)
               NVRM: installed in this system is not supported by open
               NVRM: nvidia.ko because it does not include the required GPU
               NVRM: System Processor (GSP).
               NVRM: Please see the 'Open Linux Kernel Modules' and 'GSP
               NVRM: Firmware' sections in the driver README, available on
""", "DSH-NV-005", "too old for them"),
    # As the journal has it, which marks no line that goes on (osinit.c of the driver)
    Posted("https://github.com/NVIDIA/open-gpu-kernel-modules", NVIDIA, """\
NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build  (root@)
NVRM: The NVIDIA GPU 0000:06:00.0 (PCI ID: 10de:1b06)
NVRM: installed in this system is not supported by open
NVRM: nvidia.ko because it does not include the required GPU
NVRM: System Processor (GSP).
nvidia 0000:06:00.0: probe with driver nvidia failed with error -1
NVRM: The NVIDIA probe routine failed for 1 device(s).
NVRM: None of the NVIDIA devices were initialized.
""", "DSH-NV-005", "nvidia-driver-580"),
    Posted("https://github.com/NVIDIA/gpu-operator/issues/492", NVIDIA, """\
[83260.063553] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:
               NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)
[83260.063557] nvidia: probe of 0000:14:00.0 failed with error -1
[83260.063863] nvidia 0000:1b:00.0: vgaarb: changed VGA decodes: olddecodes=none,decodes=none:owns=none
[83260.106423] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:
               NVRM: BAR1 is 0M @ 0x0 (PCI:0000:1c:00.0)
[83260.106426] nvidia: probe of 0000:1c:00.0 failed with error -1
[83260.106438] NVRM: The NVIDIA probe routine failed for 2 device(s).
[83260.106441] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  510.108.03  Thu Oct 20 05:10:45 UTC 2022
""", "DSH-NV-102", "(PCI:0000:1c:00.0)"),
    Posted("https://github.com/system76/firmware-open/issues/66", NVIDIA, """\
[   28.109029] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:
               NVRM: BAR0 is 0M @ 0x0 (PCI:0000:06:00.0)
[   28.109032] NVRM: The system BIOS may have misconfigured your GPU.
[   28.109040] nvidia: probe of 0000:06:00.0 failed with error -1
[   28.109101] NVRM: The NVIDIA probe routine failed for 1 device(s).
[   28.109102] NVRM: None of the NVIDIA devices were initialized.
""", "DSH-NV-102", "Above 4G Decoding"),
    # `dmesg -d`; of this card all addresses are missing, and it is off the bus on top of it
    Posted("https://github.com/HeyMeco/Rockchip-pcie-devices/issues/1", NVIDIA, """\
[  +0.001653] nvidia 0002:21:00.0: enabling device (0000 -> 0003)
[  +0.000060] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:
              NVRM: BAR1 is 0M @ 0x0 (PCI:0002:21:00.0)
[  +0.000029] nvidia 0002:21:00.0: vgaarb: changed VGA decodes: olddecodes=io+mem,decodes=none:owns=none
[  +0.000033] NVRM: The NVIDIA GPU 0002:21:00.0
              NVRM: (PCI ID: 10de:2204) installed in this system has
              NVRM: fallen off the bus and is not responding to commands.
[  +0.000046] nvidia: probe of 0002:21:00.0 failed with error -1
""", "DSH-NV-020", "fallen off the bus and is not responding"),
    Posted("https://github.com/MrMEEE/ironhide/issues/41", NVIDIA, """\
[ 9687.215135] NVRM: The NVIDIA probe routine was not called for 1 device(s).
[ 9687.215145] NVRM: This can occur when a driver such as nouveau, rivafb,
[ 9687.215149] NVRM: nvidiafb, or rivatv was loaded and obtained ownership of
[ 9687.215153] NVRM: the NVIDIA device(s).
[ 9687.215161] NVRM: Try unloading the conflicting kernel module (and/or
[ 9687.215165] NVRM: reconfigure your kernel without the conflicting
[ 9687.215168] NVRM: driver(s)), then try loading the NVIDIA kernel module
[ 9687.215172] NVRM: again.
[ 9687.215178] NVRM: No NVIDIA graphics adapter probed!
""", "DSH-NV-103", "then try loading the NVIDIA kernel module again."),
    Posted("https://github.com/negativo17/nvidia-driver/issues/97", NVIDIA,
           "nvidia: version magic '5.4.18-100.fc30.x86_64 SMP mod_unload ' should be "
           "'5.4.18-200.fc31.x86_64 SMP mod_unload '\n", "DSH-NV-104", "dkms autoinstall"),
    Posted("https://bugs.launchpad.net/ubuntu/+source/gcc-4.8/+bug/1750937", NVIDIA,
           "[    2.923582] nvidia: version magic '4.4.0-116-generic SMP mod_unload modversions ' should be "
           "'4.4.0-116-generic SMP mod_unload modversions retpoline '\n", "DSH-NV-104", "retpoline"),
    # kernel/module/version.c
    Posted("https://www.kernel.org", NVIDIA, "[  124.512028] nvidia: disagrees about version of symbol "
           "module_layout\n", "DSH-NV-104", "module_layout"),
    # osinit.c of the driver
    Posted("https://github.com/NVIDIA/open-gpu-kernel-modules", NVIDIA, """\
NVRM: GPU 0000:13:00.0: GPU does not have the necessary power cables connected.
NVRM: GPU 0000:13:00.0: RmInitAdapter failed! (0x24:0x1c:1447)
NVRM: GPU 0000:13:00.0: rm_init_adapter failed, device minor number 0
""", "DSH-NV-105", "power supply"),
    Posted("https://access.redhat.com/solutions/6619941", "h100x8-nvlink", """\
[131453.740743] nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
[131453.740754] nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00
[131453.740758] nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002, 0x10100030, 0x00000000, 0x10100030, 0x00000000, 0x00000000, 0x00000000, 0x00000000}
""", "DSH-NV-101", "a link went down"),
    Posted("https://github.com/leptonai/gpud/pull/338", "h100x8-nvlink", """\
kern  :err   : 2025-01-25T10:34:54,859532+00:00 nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)
kern  :err   : 2025-01-25T10:34:54,859532+00:00 nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Data {0x000001c0, 0x00bd5c8a, 0x00000500, 0x00000064, 0x00000000, 0x40008000, 0x5a001100, 0x00000000, 0x00000000}
""", "DSH-NV-101", "stalled"),
    Posted("https://github.com/NVIDIA/nvtrust/issues/124", "h100x8-nvlink", """\
[   38.178720] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt
[   38.180708] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44 Sub-engine instance 00
""", None),
    Posted("https://github.com/leptonai/gpud/pull/1160", CARD, """\
NVRM: Xid (PCI:0000:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)
""", "DSH-NV-081", "nvlink --status"),
    Posted("https://github.com/leptonai/gpud/pull/1174", CARD, """\
NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)
""", None),
    Posted("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1150", CARD, """\
kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149
""", None),
    Posted("https://github.com/leptonai/gpud/pull/46", CARD, """\
[Fri Aug 30 11:43:09 2024] NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter
[Fri Aug 30 11:43:14 2024] NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005
""", "DSH-NV-081", "--gpu-reset -i 0000:cb:00.0"),
    Posted("https://github.com/ROCm/legacy-rocm-build/issues/1357", AMD, """\
[    9.605789] amdgpu 0000:23:00.0: enabling device (0000 -> 0003)
[    9.605986] amdgpu 0000:23:00.0: Direct firmware load for amdgpu/arcturus_gpu_info.bin failed with error -2
[    9.605988] amdgpu 0000:23:00.0: Failed to load gpu_info firmware "amdgpu/arcturus_gpu_info.bin"
[    9.605988] amdgpu 0000:23:00.0: Fatal error during GPU init
[    9.605990] amdgpu 0000:23:00.0: amdgpu: finishing device.
[    9.606063] amdgpu: probe of 0000:23:00.0 failed with error -2
""", "DSH-AM-101", "arcturus_gpu_info.bin"),
    Posted("https://github.com/kernelci/kernelci-core/pull/2238", AMD, """\
[    3.576634] amdgpu 0000:04:00.0: Direct firmware load for amdgpu/psp_13_0_8_toc.bin failed with error -2
[    3.586367] amdgpu 0000:04:00.0: amdgpu: fail to request/validate toc microcode
[    3.593924] [drm:psp_sw_init] *ERROR* Failed to load psp firmware!
[    3.600359] [drm:amdgpu_device_ip_init] *ERROR* sw_init of IP block <psp> failed -2
[    3.608265] amdgpu 0000:04:00.0: amdgpu: amdgpu_device_ip_init failed
[    3.614955] amdgpu 0000:04:00.0: amdgpu: Fatal error during GPU init
""", "DSH-AM-101", "firmware"),
    Posted("https://github.com/AMD-BC-250/documentation/issues/4", AMD, """\
amdgpu 0000:01:00.0: amdgpu: Failed to get gpu_info firmware "cyan_skillfish_gpu_info.bin"
amdgpu 0000:01:00.0: amdgpu: Fatal error during GPU init
""", "DSH-AM-101", "cyan_skillfish"),
    # A file for a part that the card does without
    Posted("https://bugzilla.kernel.org/show_bug.cgi?id=219929", "mi210x4-xgmi", """\
amdgpu 0000:63:00.0: Direct firmware load for amdgpu/isp_4_1_0.bin failed with error -2
""", None),
    Posted("https://github.com/ROCm/legacy-rocm-build/issues/1886", "mi210x4-xgmi", """\
[Sat Jan  7 14:25:56 2023] amdgpu 0000:e3:00.0: amdgpu: SRAM ECC is active.
[Sat Jan  7 14:25:56 2023] amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!
[Sat Jan  7 14:25:56 2023] amdgpu 0000:e3:00.0: amdgpu: GPU reset begin!
""", "DSH-AM-102", "sudo reboot"),
    Posted("https://github.com/ROCm/legacy-rocm-build/issues/4021", "mi210x4-xgmi", """\
[13850.912648] amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!
[13850.927924] amdgpu 0000:42:00.0: {1}[Hardware Error]: Accelerator Check Architecture events logged
""", "DSH-AM-102", "ERREVENT_ATHUB_INTERRUPT"),
)  # fmt: skip

# amdgpu_ras.c and amdgpu_ras_eeprom.c: the forms of their lines through the years
RAS = (
    ("amdgpu 0000:63:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block", "warn"),
    ("amdgpu 0000:63:00.0: amdgpu: socket: 0 2 uncorrectable hardware errors detected in gfx block", "warn"),
    ("amdgpu 0000:63:00.0: {12} socket: 0, die: 1, 1 new uncorrectable hardware errors detected in umc block",
     "warn"),
    ("amdgpu 0000:63:00.0: RAS records:273 exceed threshold:256", "error"),
    ("amdgpu 0000:63:00.0: amdgpu: This GPU is in BAD status.", "error"),
    ("amdgpu 0000:63:00.0: amdgpu: no uncorrectable hardware errors detected in umc block", "ok"),
    ("amdgpu 0000:63:00.0: amdgpu: 7 correctable hardware errors detected in umc block", "ok"),
    ("amdgpu 0000:63:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block", "ok"),
    # A sleeping card's counters read as all ones: no errors, and once more with each question
    ("amdgpu 0000:0b:00.0: 1048560 uncorrectable hardware errors detected in umc block", "ok"),
    ("amdgpu 0000:0b:00.0: 3145680 uncorrectable hardware errors detected in umc block", "ok"),
)  # fmt: skip
