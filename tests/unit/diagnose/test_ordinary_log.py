"""What the kernels of healthy machines write about GPUs at every start: on no machine a fault."""

from __future__ import annotations

import pytest

from dshpc_setup.diagnose import diagnose
from dshpc_setup.diagnose.model import WRONG
from tests.unit.diagnose.known import FOLDER, known
from tests.unit.diagnose.test_kernel_texts import with_log

# Of each maker's drivers, old and new, in the words of their sources
LOG = r"""
[    1.200000] nvidia: loading out-of-tree module taints kernel.
[    1.200001] nvidia: module license 'NVIDIA' taints kernel.
[    1.200002] nvidia: module verification failed: signature and/or required key missing - tainting kernel
[    1.300000] nvidia-nvlink: Nvlink Core is being initialized, major device number 236
[    1.400000] nvidia 0000:01:00.0: enabling device (0000 -> 0003)
[    1.400001] nvidia 0000:01:00.0: vgaarb: VGA decodes changed: olddecodes=io+mem,decodes=none:owns=none
[    1.500000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025
[    1.600000] nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  550.163.01
[    1.700000] [drm] [nvidia-drm] [GPU ID 0x00000100] Loading driver
[    1.700001] [drm] [nvidia-drm] [GPU ID 0x00000100] Failed to grab modeset ownership
[    1.800000] nvidia_uvm: module uses symbols nvUvmInterfaceDisableAccessCntr from proprietary module nvidia, inheriting taint.
[    2.000000] nvidia-nvswitch: Probing device 0000:a9:00.0, Vendor Id = 0x10de, Device Id = 0x22a3
[    2.100000] NVRM: GPU at PCI:0000:01:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7
[    2.100001] NVRM: objClInitPcieChipset: *** Chipset not recognised
[    2.200000] nvidia-gpu 0000:01:00.3: Unable to change power state from D3cold to D0, device inaccessible
[    2.300000] [drm] amdgpu kernel modesetting enabled.
[    2.300001] amdgpu: Ignoring ACPI CRAT on non-APU system
[    2.300002] amdgpu 0000:03:00.0: amdgpu: RAS: optional ras ta ucode is not available
[    2.300003] amdgpu 0000:03:00.0: amdgpu: SRAM ECC is active.
[    2.300004] amdgpu 0000:03:00.0: Direct firmware load for amdgpu/psp_14_0_1_ta.bin failed with error -2
[    2.300005] amdgpu 0000:03:00.0: amdgpu: Runtime PM not available
[    2.300006] amdgpu 0000:03:00.0: amdgpu: MODE2 reset
[    2.300007] amdgpu 0000:03:00.0: amdgpu: no uncorrectable hardware errors detected in umc block
[    2.300008] [drm] Initialized amdgpu 3.57.0 20150101 for 0000:03:00.0 on minor 1
[    2.400000] i915 0000:00:02.0: [drm] GuC firmware i915/adlp_guc_70.bin version 70.20.0
[    2.400001] xe 0000:03:00.0: [drm] Using GuC firmware from xe/bmg_guc_70.bin
[    2.500000] nouveau 0000:01:00.0: NVIDIA TU117 (167000a1)
[    2.600000] Lockdown: swapper/0: hibernation is restricted; see man kernel_lockdown.7
"""  # noqa: E501  (as they are printed)


@pytest.mark.parametrize("name", sorted(each.name for each in FOLDER.iterdir() if each.is_dir()))
def test_it_is_no_fault(name: str) -> None:
    before = {each.id for each in diagnose(known(name)) if each.state in WRONG}
    after = {each.id for each in diagnose(with_log(name, LOG)) if each.state in WRONG}
    assert after <= before
