"""The names of Slurm types."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.probes.naming import profile_of, slurm_type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA H200 NVL", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA GH200 144G HBM3e", "gh200"),
        ("NVIDIA GB10", "gb10"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA GeForce RTX 3080", "rtx_3080"),
        ("NVIDIA GeForce RTX 2080 SUPER", "rtx_2080_super"),
        ("GeForce GTX 1070 Ti", "gtx_1070_ti"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx_4090_laptop"),
        ("NVIDIA RTX A6000", "rtx_a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("Quadro RTX 8000", "rtx_8000"),
        ("NVIDIA TITAN RTX", "titan_rtx"),
        ("GeForce 210", "gpu_210"),
        ("Orin (nvgpu)", "orin"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("AMD Radeon RX 6700 XT", "rx_6700_xt"),
        ("Intel(R) Data Center GPU Max 1550", "max_1550"),
        ("Intel(R) Arc(TM) A770 Graphics", "a770"),
        ("NVIDIA Graphics", "gpu"),
        ("NVIDIA Graphics Device", "gpu"),
        ("", "gpu"),
        (None, "gpu"),
    ],
)
def test_short_model_names(name: str | None, expected: str) -> None:
    assert slurm_type(name) == expected


@given(st.one_of(st.text(), st.from_regex(r"(NVIDIA )?[0-9 ]{0,6}")))
def test_any_name_makes_a_type_that_slurm_takes(name: str) -> None:
    found = slurm_type(name)
    assert re.fullmatch(r"[a-z0-9_]{1,44}", found)
    assert not found.replace("_", "").isdigit(), "slurmctld refuses a numeric type"


@pytest.mark.parametrize(
    ("name", "slices", "expected"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, "1g.10gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", None, "1c.3g.20gb"),
        ("NVIDIA H100 MIG 1g.10gb+me", None, "1g.10gb.me"),
        (None, [3, 3, 40448], "3g.40gb"),
        ("NVIDIA A100", [3, 1, 19968], "1c.3g.20gb"),
        ("NVIDIA A100", [0, 0, 0], None),
        ("NVIDIA A100", "3", None),
        (None, None, None),
    ],
)
def test_mig_profiles(name: str | None, slices: object, expected: str | None) -> None:
    assert profile_of(name, slices) == expected
