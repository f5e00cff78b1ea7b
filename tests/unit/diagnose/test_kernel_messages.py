"""The kernel's log as messages: prefixes taken off, lines of one message joined, two devices never."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dshpc_setup.diagnose.kernel_messages import MOST_LETTERS, devices, joined, messages

OPEN = (
    "NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db5)",
    "NVRM: installed in this system is not supported by open",
    "NVRM: nvidia.ko because it does not include the required GPU",
    "NVRM: System Processor (GSP).",
)
WHOLE = (
    "NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db5) installed in this system is not supported by open "
    "nvidia.ko because it does not include the required GPU System Processor (GSP)."
)
AFTER = "NVRM: None of the NVIDIA devices were initialized."
INDENT = "\n               "


@pytest.mark.parametrize(
    "text",
    [
        f"[ 1157.046099] {INDENT.join(OPEN)}\n[ 1157.05] {AFTER}",  # dmesg
        f"<4>[ 1157.046099][ T1042] {INDENT.join(OPEN)}\n<4>[ 1157.05][ T1042] {AFTER}",
        f"[  +0.000060] {INDENT.join(OPEN)}\n[  +0.000008] {AFTER}",  # dmesg -d
        f"[Fri Jan 16 20:00:15 2026] {INDENT.join(OPEN)}\n[Fri Jan 16 20:00:15 2026] {AFTER}",  # -T
        f"[Nov18 10:51] {INDENT.join(OPEN)}\n[  +0.000003] {AFTER}",  # -e
        f"kern  :err   : [ 11.04] {INDENT.join(OPEN)}\nkern  :info  : [ 11.05] {AFTER}",  # -x
        "\n".join((*OPEN, AFTER)),  # journalctl --output=cat
        "\n".join(f"Nov 23 08:04:43 node7 kernel: [ 11.2] {line}" for line in (*OPEN, AFTER)),
        "\n".join(f"2026-11-23T08:04:43.123456+01:00 node7 kernel: {line}" for line in (*OPEN, AFTER)),
        f"Nov  3 08:04:43 node7 kernel: {'#012'.join(OPEN)}\nNov  3 08:04:43 node7 kernel: {AFTER}",
    ],
)  # fmt: skip
def test_one_message_in_every_form_of_a_log(text: str) -> None:
    assert [message for message in messages(text) if message] == [WHOLE, AFTER]


def test_dev_kmsg() -> None:
    text = "4,1234,5678901,-;" + r"\x0a".join(OPEN) + f"\n4,1235,5678909,-;{AFTER}\n SUBSYSTEM=pci"
    assert next(message for message in messages(text) if message) == WHOLE


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (OPEN, 1),
        (("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
          "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:0a:00.0)",
          "NVRM: The system BIOS may have misconfigured your GPU."), 1),
        (("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
          "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:0a:00.0)",
          "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
          "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:0b:00.0)"), 2),
        # A card, then another one: the same words belong to each
        ((OPEN[0], "NVRM: GPU 0000:b0:00.0: RmInitAdapter failed! (0x22:0x56:884)"), 2),
        ((OPEN[0], "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:b0:00.0)"), 2),
        ((OPEN[0], "nvidia 0000:af:00.0: probe with driver nvidia failed with error -1", OPEN[1]), 3),
        (("NVRM: GPU at PCI:0000:01:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
          "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."), 2),
        (("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06", OPEN[1]), 2),
        (("NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db5)", "NVRM: _kgspBootGspRm: it failed"), 2),
        (("NVRM: API mismatch: the client 'nvidia-smi' (pid 4711)",
          "NVRM: has the version 580.95.05, but this kernel module has",
          "NVRM: the version 570.195.03.  Please make sure that this",
          "NVRM: kernel module and all NVIDIA driver components",
          "NVRM: have the same version."), 1),
    ],
)  # fmt: skip
def test_what_belongs_together(lines: tuple[str, ...], count: int) -> None:
    found = joined(lines)
    assert len(found) == count
    assert "".join(found).count("NVRM:") <= count


def test_the_devices_of_a_line() -> None:
    assert devices("NVRM: GPU at PCI:0000:01:00: GPU-b8") == {"0000:01:00"}
    assert devices("(PCI:00000000:1A:00.0) 0001:02:03.4") == {"0000:1a:00", "0001:02:03"}
    assert devices("nvidia 10000:E1:00.0: x (PCI:00010000:e1:01)") == {"10000:e1:00", "10000:e1:01"}
    assert not devices("RmInitAdapter failed! (0x22:0x56:884) 10de:1db5 10:05:45")


ADDRESS = st.from_regex(r"000[0-3]:[0-9a-f]{2}:0[0-3]", fullmatch=True)
LINE = st.builds(
    lambda form, address: form.format(address),
    st.sampled_from((
        "NVRM: The NVIDIA GPU {}.0 (PCI ID: 10de:1db5)", "NVRM: BAR1 is 0M @ 0x0 (PCI:{}.0)",
        "NVRM: Xid (PCI:{}): 79, GPU has fallen off the bus.", "NVRM: GPU {}.0: RmInitAdapter failed!",
        "nvidia 0000:01:00.0: enabling device", "amdgpu {}.0: amdgpu: GPU reset begin!", *OPEN[1:],
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", AFTER, "",
        "NVRM: (the GPU {} is likely in a bad state)", "usb 1-1: new device",
    )),
    ADDRESS,
)  # fmt: skip
STAMP = st.sampled_from(("", "[    1.000000] ", "               ", "[Fri Jan 16 20:00:15 2026] "))


@given(st.lists(st.tuples(STAMP, LINE)))
def test_lines_of_two_devices_are_never_joined(lines: list[tuple[str, str]]) -> None:
    for found in (messages("\n".join(stamp + line for stamp, line in lines)),
                  joined(line for _, line in lines)):  # fmt: skip
        for message in found:
            assert len(devices(message)) <= 1


@given(st.lists(st.tuples(STAMP, LINE)))
def test_no_word_is_lost(lines: list[tuple[str, str]]) -> None:
    text = " ".join(messages("\n".join(stamp + line for stamp, line in lines)))
    for _, line in lines:
        assert line.removeprefix("NVRM: ") in text or len(text) >= MOST_LETTERS


@given(st.text() | st.lists(st.sampled_from((*OPEN, "\x1b[31mNVRM\x00", "[" * 40))).map("\n".join))
@example("NVRM: " + "x" * 100_000)
@example("[" * 5000 + "NVRM")
@example("NVRM: The NVIDIA GPU\n" * 1000)
def test_any_text_is_read(text: str) -> None:
    for message in messages(text):
        assert len(message) <= MOST_LETTERS
        assert message.isprintable()
