"""What is a secret in logs, settings and Slurm's own words, and what only looks like one."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote

import pytest

from dshpc_setup.record.scrub import Scrubber
from tests.unit.record.test_scrub import scrubbed

ENCODED = base64.b64encode(b"password=hunter2222").decode()


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("PGPASSWORD=hunter2222", r"PGPASSWORD=removed-\d+"),
        ("StoragePass=hunter2222", r"StoragePass=removed-\d+"),
        ('db_pass: "two words 4"', r'db_pass: "removed-\d+"'),
        ("password=ab&cd,ef;gh rest", r"password=removed-\d+ rest"),
        ("password=ab12&user=root", r"password=removed-\d+&user=root"),
        ("Pwd=hunter2222;Server=x", r"Pwd=removed-\d+;Server=x"),
        (r"{\"token\":\"abc123\"}", r"{\\\"token\\\":\\\"removed-\d+\\\"}"),
        ("Cookie: sid=abc123", r"Cookie: removed-\d+"),
        ("x --password hunter22 y", r"x --password removed-\d+ y"),
        ("docker login -u carolz -p hunter22 x", r"docker login -u user-\d+ -p removed-\d+ x"),
        ("login https://reg.corp.test --user carolz -p hunter22",
         r"login https://host-\d+\.site-\d+\.example --user user-\d+ -p removed-\d+"),
        ("curl -u carolz:hunter22 x", r"curl -u user-\d+:removed-\d+ x"),
        ("/a?key=abc123&b=1", r"/a\?key=removed-\d+&b=1"),
        ("Bearer abcdef012345", r"Bearer removed-\d+"),
        (f"Authorization: Basic {ENCODED}", r"Authorization: Basic removed-\d+"),
        (f"it said {ENCODED}", r"it said removed-\d+"),
        (f"to={quote('http://carolz:pw@git.corp.test/', safe='')}", r"to=removed-\d+"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEv\nQIBAD", r"\(a private key was here\)"),
        ("MIIEvQIBADANBgkqhkiG9\n-----END PRIVATE KEY-----", r"\(a private key was here\)"),
        ("UserId=carolz(61234) x", r"UserId=user-\d+\(10\d\d\) x"),
        ("JobName=protein7 x", r"JobName=job-\d+ x"),
        ("Reason=bad [carolz@2026-11-01T10:00:00]", r"Reason=bad \[user-\d+@2026-11-01T10:00:00\]"),
        ("NodeName=rack4 Nodes=rack4 at rack4", r"NodeName=(host-\d+) Nodes=\1 at \1"),
        ("NodeAddr=rack4 SlurmctldHost=rack5", r"NodeAddr=host-\d+ SlurmctldHost=host-\d+"),
        ("call 01714402217 J. Doe", r"call number\d+ J. word\d+"),
        ("of 4412345678 C today", r"of number\d+ C today"),
        ("Killed process 812 (mysolver) total", r"Killed process 812 \(process\) total"),
        ("Xid (PCI:0000:1a:00): 31, pid=7, name=mysolver, x",
         r"Xid \(PCI:0000:1a:00\): 31, pid=7, name=process, x"),
    ],
)  # fmt: skip
def test_a_secret_goes_and_what_is_around_it_stays(text: str, form: str) -> None:
    assert re.fullmatch(form, scrubbed(text)), scrubbed(text)


@pytest.mark.parametrize(
    "text",
    [
        "AuthType=auth/slurm CredType=cred/slurm",
        "path=1 class: low PWD=/opt/x tokens: none",
        "SlurmUser=slurm SlurmdUser=root UserId=root(0) USER=ubuntu",
        "NodeName=DEFAULT NodeList=(null) PartitionName=debug Nodes=ALL Default=YES",
        "NodeName=dshpc SlurmctldHost=dshpc",
        "JobName=wrap JobName=bash job_name=interactive",
        "Reason=Low RealMemory [slurm@2026-11-01T10:00:00]",
        "Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "Gres=gpu:rtx_4090:1 Features=nvidia,cc8.9 State=IDLE+DRAIN",
        "100% of 50%20 used, 12%",
        "35 C, 300 W, 5 B, 16281600 kB of 16281600 kB, 0 J, 12345.5 W",
        "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node",
        "-----BEGIN CERTIFICATE-----",
        "--gpus all --user 0 --tokens 5 --name=slurm",
        "uid 0 uid 1000 gid 109",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert scrubbed(text) == text


def test_a_password_that_was_seen_once_goes_everywhere() -> None:
    text = "password=Hunter2222 and then Hunter2222 alone"
    assert "Hunter" not in scrubbed(text)
    assert scrubbed("password=secret and secret alone").endswith(" and secret alone"), "a word"


def test_a_key_in_several_lines_of_a_list_is_one_key() -> None:
    lines = [
        "a",
        "-----BEGIN EC PRIVATE KEY-----",
        "MIIEv",
        "QIBAD",
        "-----END EC PRIVATE KEY-----",
        "b",
    ]
    assert Scrubber().value(lines) == ["a", "(a private key was here)", "b"]


def test_a_number_where_a_password_stands_goes() -> None:
    assert Scrubber().value({"password": 12345678, "count": 12345678}) == {
        "password": 0,
        "count": 12345678,
    }


def test_a_host_that_is_kept_stays_where_it_is_a_host() -> None:
    scrubber = Scrubber(hosts=["node"], kept=["node"])
    assert scrubber.text("NodeName=node") == "NodeName=node"
    assert scrubber.host("node") == "node"
    assert Scrubber().host("node") == "host-1"


def test_a_folder_has_one_name_with_all_below_it() -> None:
    scrubber = Scrubber()
    scrubber.folder("/srv/acquisition/x")
    assert scrubber.text("/srv/acquisition/x/config:/srv/acquisition/xy") == (
        "/folder-1/config:/srv/word1/word2"
    )
