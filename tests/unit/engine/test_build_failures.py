from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine.build_failures import TAIL_LINES, Progress, reason, redacted, tail


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("W: Failed to fetch http://m/x  Temporary failure resolving 'm'", "dns"),
        ("Could not connect to m:80 (1.2.3.4), connection timed out", "network"),
        ("E: Unable to locate package slurmctld", "package"),
        ("Err:1 http://m trixie InRelease\n  404  Not Found [IP: 1.2.3.4 80]", "package"),
        ("SSL connection failed: certificate verify failed / peer not verified", "certificate"),
        ("x509: certificate signed by unknown authority", "certificate"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk-full"),
        ("failed to register layer: write /x: no space left on device", "disk-full"),
        ("The command 'sh' returned a non-zero code: 137", "memory"),
        ('ERROR: process "/bin/sh -c x" did not complete successfully: exit code: 137', "memory"),
        ("407  Proxy Authentication Required", "proxy"),
        ("E: The repository 'http://m trixie InRelease' is not signed.", "signature"),
        ("E: Release file for http://m/InRelease is not valid yet", "date"),
        ("Get:1 x\nunexpected EOF", "daemon"),
        ("error during connect: Post \"http://%2Fvar%2Frun\": EOF", "daemon"),
        ("ERROR: failed to receive status: rpc error: code = Unavailable: transport is closing",
         "daemon"),
        ("pull access denied for dshpc-base", "base"),
        ('unable to find image "sha256:0c1f"', "removed"),
        ("unknown parent image ID sha256:0c1f", "removed"),
        ("No such image: sha256:0c1f", "removed"),
        ("No such image: lab:1", "unknown"),
        ("ModuleNotFoundError: No module named 'x'", "unknown"),
    ],
)  # fmt: skip
def test_reason(text: str, name: str) -> None:
    found = reason(f"Step 3/9 : RUN x\n{text}\n")
    assert found.name == name
    assert found.steps


def test_an_early_warning_does_not_count() -> None:
    assert reason("certificate\n" + "line\n" * 100 + "boom").name == "unknown"


def test_progress_of_both_builders() -> None:
    old, new = Progress(), Progress()
    assert old.line("Step 3/9 : RUN apt-get") == "step 3 of 9"
    assert old.line("Get:12 http://m/debian trixie/main amd64 slurmd amd64 24.11 [1 kB]") == (
        "step 3 of 9: fetching slurmd"
    )
    assert old.line(" ---> 70fca73d094d") is None
    assert new.line("#9 [install 4/6] RUN --mount=type=secret,id=ca sh install.sh") == "step 4 of 6"
    assert new.line("#9 12.3 Unpacking libc6:amd64 (2.41) ...") == "step 4 of 6: unpacking libc6"
    assert new.line("#9 14.0 Setting up python3 (3.13) ...") == "step 4 of 6: setting up python3"
    assert new.line("#14 [stage-1 1/1] COPY --from=install / /") == "last stage"
    assert new.line("#5 [internal] load metadata") is None


@given(st.text())
def test_progress_takes_any_line(text: str) -> None:
    shown = Progress().line(text)
    assert shown is None or "\n" not in shown


def test_tail() -> None:
    text = "\n".join(f"\x1b[91m{number}\x1b[0m\n" for number in range(100))
    assert tail(text).splitlines() == [str(number) for number in range(100 - TAIL_LINES, 100)]


def test_redacted() -> None:
    assert redacted("via http://me:pa55@proxy:1/x and pa55", ("pa55",)) == (
        "via http://***@proxy:1/x and ***"
    )
    assert redacted("mail a@b stays, http://host/a@b stays") == (
        "mail a@b stays, http://host/a@b stays"
    )


@given(st.text("abcdefgh0123456789%", min_size=1))
def test_no_login_survives(password: str) -> None:
    assert f":{password}@" not in redacted(f"E: http://user:{password}@proxy:3128/ failed")
