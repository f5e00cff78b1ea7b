"""A vendor's name stands in its folder alone: what is known of it, its descriptor says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dshpc_setup
from dshpc_setup import gpu_vendors

PACKAGE = Path(dshpc_setup.__file__).parent
OURS = ("nvidia", "amd", "intel")

# Parts of a vendor's folder that lie in the rooms where they are used: they know their own vendor.
OF_A_VENDOR = {
    "checkup/device_links.py": "the nodes that NVIDIA's own tools make",
    "diagnose/amd.py": "AMD's checks",
    "diagnose/amd_cards.py": "AMD's checks",
    "diagnose/nvidia.py": "NVIDIA's checks",
    "diagnose/nvidia_containers.py": "NVIDIA's checks",
    "diagnose/nvidia_evidence.py": "NVIDIA's checks",
    "diagnose/nvidia_starts.py": "NVIDIA's checks",
    "diagnose/ways.py": "what NVIDIA's toolkit will come to",
    "passthrough/cuda.py": "NVIDIA's names for its cards",
    "passthrough/image.py": "the variables of NVIDIA's images",
    "probes/amd/": "AMD's probe",
    "probes/nvidia/": "NVIDIA's probe",
}
# Others' rules and words, in which a name is no more than that
REASONS = {
    "metrics/families.py": "Xid is NVIDIA's word, and DCGM's metric of it",
    "facts/evidence.py": "a kernel module that has the name of its vendor",
    "machine/profiles.py": "made-up cards are of these two",
    "machine/simulated.py": "made-up cards are of these two",
    "passthrough/handover.py": "Docker's own rule: a device request without a driver is NVIDIA's",
    "passthrough/refusals_engine.py": "what engines and toolkits say",
    "passthrough/refusals_toolkit.py": "what engines and toolkits say",
    "passthrough/rules.py": "what engines and toolkits say",
    "pasted/__init__.py": "whose messages are looked at where a GPU is in use",
}


def _named(tree: ast.AST) -> Iterator[int]:
    """The lines of literals that are a vendor's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in OURS:
            yield node.lineno


def _excused(file: str) -> str | None:
    known = (*OF_A_VENDOR, *REASONS)
    return next((each for each in known if file == each or file.startswith(f"{each}")), None)


def _files() -> Iterator[tuple[str, list[int]]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if not file.startswith(("vendors/", "_share/")):
            yield file, list(_named(ast.parse(path.read_text())))


def test_no_name_of_a_vendor_stands_elsewhere() -> None:
    found = {file: lines for file, lines in _files() if lines and _excused(file) is None}
    assert not found, "ask gpu_vendors, or give the descriptor a field"


def test_no_excuse_is_left_over() -> None:
    named = {_excused(file) for file, lines in _files() if lines}
    assert named - {None} == {*OF_A_VENDOR, *REASONS}, "take it out of OF_A_VENDOR or REASONS"


def test_ours_are_all() -> None:
    assert gpu_vendors.names() == OURS, "a new vendor's name belongs into OURS of this file"
    orders = [each.order for each in gpu_vendors.all_of_them()]
    assert len(set(orders)) == len(orders), "two descriptors have the same order"
    assert gpu_vendors.aspect("nvidia", "simulated") is None
    assert gpu_vendors.find("mixed") is None
    assert gpu_vendors.find("../amd") is None
    with pytest.raises(LookupError, match="none is no vendor of GPUs"):
        gpu_vendors.of("none")


def test_an_aspect_that_cannot_be_imported_is_no_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dshpc_setup import vendors

    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/__init__.py").touch()
    (tmp_path / "broken/probe.py").write_text("import dshpc_setup.nothing_of_that_name\n")
    monkeypatch.setattr(vendors, "__path__", [*vendors.__path__, str(tmp_path)])
    assert gpu_vendors.aspect("broken", "readings") is None
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        gpu_vendors.aspect("broken", "probe")
