"""The filter of slurmd and of jobs: its program, run by an interpreter of the kernel's few instructions."""

from __future__ import annotations

import struct

import pytest

from dshpc_setup.container.confined import program

X86_64, I386, AARCH64, ARM, FOREIGN = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028, 0x80000016
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
NEW_USER, SIGCHLD = 0x10000000, 17


def verdict(text: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """What the kernel's bpf_prog_run says of a call; only jumps forward, so that it ends."""
    data = struct.pack("<IIQQ", number, architecture, 0, argument)
    steps = list(struct.iter_unpack("<HBBI", text))
    place = accumulator = 0
    while True:
        code, if_true, if_false, constant = steps[place]
        place += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                accumulator &= constant
            case 0x05:
                place += constant
            case 0x15:
                place += if_true if accumulator == constant else if_false
            case 0x45:
                place += if_true if accumulator & constant else if_false
            case 0x06:
                return int(constant)
            case _:
                raise AssertionError(code)


PC = program("x86_64", keeps_bpf=False)


@pytest.mark.parametrize(
    ("machine", "architecture", "mount", "unshare", "keyctl", "clone", "read"),
    [
        ("x86_64", X86_64, 165, 272, 250, 56, 0),
        ("x86_64", I386, 21, 310, 288, 120, 3),
        ("aarch64", AARCH64, 40, 97, 219, 220, 63),
        ("aarch64", ARM, 21, 337, 311, 120, 3),
    ],
)
def test_a_job_makes_no_namespace_and_no_mount(
    machine: str, architecture: int, mount: int, unshare: int, keyctl: int, clone: int, read: int
) -> None:
    text = program(machine, keeps_bpf=True)
    for number in (mount, unshare, keyctl):
        assert verdict(text, architecture, number) == EPERM
    assert verdict(text, architecture, clone, NEW_USER | SIGCHLD) == EPERM
    assert verdict(text, architecture, clone, SIGCHLD) == ALLOW
    assert verdict(text, architecture, 435) == ENOSYS  # clone3
    assert verdict(text, architecture, 430) == EPERM  # fsopen
    assert verdict(text, architecture, read) == ALLOW


def test_bpf_is_kept_for_slurmd_where_it_needs_it() -> None:
    assert verdict(PC, X86_64, 321) == EPERM
    assert verdict(program("x86_64", keeps_bpf=True), X86_64, 321) == ALLOW


def test_the_numbers_of_x32_are_no_way_around() -> None:
    assert verdict(PC, X86_64, 0x40000000 | 165) == EPERM


def test_a_call_of_another_architecture_is_refused() -> None:
    assert verdict(PC, FOREIGN, 0) == ENOSYS
    assert verdict(PC, AARCH64, 63) == ENOSYS


def test_no_filter_no_daemon() -> None:
    with pytest.raises(OSError, match="s390x"):
        program("s390x", keeps_bpf=False)


def test_the_kernel_takes_programs_of_this_length() -> None:
    assert len(PC) % 8 == 0
    assert len(PC) // 8 < 4096  # BPF_MAXINSNS
