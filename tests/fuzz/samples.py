"""What tools print, in as few words as hold every kind of line: seeds for damage."""

from __future__ import annotations

import json
from pathlib import Path

MACHINES = Path(__file__).parents[1] / "machines"

XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>550.163.01</driver_version>
  <cuda_version>12.4</cuda_version>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:1A:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
    <mig_devices><mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id>
      <compute_instance_id>0</compute_instance_id><device_attributes><shared>
      <multiprocessor_count>16</multiprocessor_count></shared></device_attributes>
      <fb_memory_usage><total>9728 MiB</total><used>1 MiB</used></fb_memory_usage>
    </mig_device></mig_devices>
    <uuid>GPU-5b1f2c3d-0a1b-4c2d-8e3f-000000000001</uuid>
    <minor_number>0</minor_number>
    <pci><pci_bus_id>00000000:1A:00.0</pci_bus_id></pci>
    <fb_memory_usage><total>81559 MiB</total><used>4 MiB</used></fb_memory_usage>
    <compute_mode>Default</compute_mode>
    <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
  </gpu>
  <gpu id="00000000:3B:00.0">
    <product_name>Tesla T4</product_name>
    <uuid>GPU-5b1f2c3d-0a1b-4c2d-8e3f-000000000002</uuid>
    <minor_number>N/A</minor_number>
    <fb_memory_usage><total>[N/A]</total></fb_memory_usage>
  </gpu>
</nvidia_smi_log>
"""

CSV = """\
0, GPU-5b1f2c3d-0a1b-4c2d-8e3f-000000000001, 00000000:1A:00.0, 81559, 550.163.01, Enabled, NVIDIA H100
1, GPU-5b1f2c3d-0a1b-4c2d-8e3f-000000000002, 00000000:3B:00.0, [N/A], 550.163.01, [N/A], Tesla T4
"""

LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5b1f2c3d-0a1b-4c2d-8e3f-000000000001)
  MIG 3g.40gb     Device  0: (UUID: MIG-5b1f2c3d-0a1b-4c2d-8e3f-00000000000a)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-GPU-5b1f2c3d-0a1b-4c2d-8e3f-000000000001/9/0)
GPU 1: Tesla T4 (UUID: GPU-5b1f2c3d-0a1b-4c2d-8e3f-000000000002)
"""

LOG = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Jan  5 10:00:00 2026
Driver Version                            : 550.163.01
CUDA Version                              : 12.4

Attached GPUs                             : 1
GPU 00000000:1A:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 1
        FB Memory Usage
            Total                         : 9728 MiB
    GPU UUID                              : GPU-5b1f2c3d-0a1b-4c2d-8e3f-000000000001
    FB Memory Usage
        Total                             : 81559 MiB
"""

ROCM = json.dumps(
    {
        "card0": {
            "GPU ID": "0x74a1",
            "Unique ID": "0x8f3a2b1c00112233",
            "Card series": "AMD Instinct MI300X OAM",
            "PCI Bus": "0000:05:00.0",
            "VRAM Total Memory (B)": "206141652992",
        },
        "card10": {"Device Name": "Navi 31", "GUID": "1234", "PCI Bus": "N/A"},
        "system": {"Driver version": "6.8.5"},
    }
)

AMD = json.dumps(
    [
        {
            "gpu": 0,
            "asic": {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1"},
            "bus": {"bdf": "0000:05:00.0"},
            "vram": {"type": "HBM3", "size": {"value": 196592, "unit": "MB"}},
            "partition": {"accelerator_partition": "SPX", "memory_partition": "NPS1"},
        }
    ]
)

TOOLS = (XML, CSV, LIST, LOG, ROCM, AMD)


def machines() -> list[Path]:
    return sorted(path.parent for path in MACHINES.glob("*/machine.yaml"))
