"""What a site told pip, and what uv is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import pip_settings, uv
from tests.unit.image.fakes import FakeMachine

SYSTEM = "/etc/pip.conf"
USER = "/home/ada/.config/pip/pip.conf"
HOME = {"HOME": "/home/ada"}


def told(environ: Mapping[str, str], files: Mapping[str, str]) -> dict[str, str]:
    return pip_settings.read({**HOME, **environ}, files.get, "/env")


def test_a_file_nearer_to_the_user_counts_more_and_a_variable_most() -> None:
    files = {
        "/etc/xdg/pip/pip.conf": "[global]\nindex-url = xdg\ntimeout = 1\n",
        SYSTEM: "[global]\nindex-url = system\nretries = 2\nproxy = system\n[install]\nproxy = own\n",
        USER: "[global]\nindex_url = user\nproxy = user\n[list]\nformat = columns\n",
        "/env/pip.conf": "[global]\nretries = 7\n",
    }
    found = told({"PIP_TIMEOUT": "9", "PIP_CERT": ""}, files)
    assert found == {"index-url": "user", "timeout": "9", "retries": "7", "proxy": "own"}


def test_a_named_file_takes_the_place_of_the_user_s() -> None:
    files = {USER: "[global]\nindex-url = user\n", "/my.conf": "[global]\nretries = 1\n"}
    assert told({"PIP_CONFIG_FILE": "/my.conf"}, files) == {
        "config-file": "/my.conf",
        "retries": "1",
    }
    assert told({"PIP_CONFIG_FILE": "/dev/null"}, files) == {"config-file": "/dev/null"}


def test_a_damaged_file_is_passed_over() -> None:
    assert told({}, {USER: "no section", SYSTEM: "[global]\nretries = 1\n"}) == {"retries": "1"}


def test_percent_signs_are_plain() -> None:
    url = "https://ada:p%40ss@mirror.example/simple"
    assert told({}, {USER: f"[global]\nindex-url = {url}\n"}) == {"index-url": url}


def test_a_site_s_index_is_uv_s(tmp_path: Path) -> None:
    file = f"""[global]
index-url = https://mirror.example/simple
extra-index-url =
    https://lab.example/simple
    https://old.example/simple
find-links = {tmp_path} /nowhere https://h.example/wheels
trusted-host = mirror.example lab.example
cert = /site.pem
client-cert = /me.pem
timeout = 90
retries = 9
proxy = http://proxy.example:3128
pre = yes
constraint = /c.txt
"""
    environ = {"SSL_CERT_FILE": "/other.pem", "PIP_DEFAULT_TIMEOUT": "5"}
    proxy = "http://proxy.example:3128"
    assert pip_settings.for_uv(told(environ, {SYSTEM: file}), environ) == {
        "UV_SYSTEM_CERTS": "true",
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://lab.example/simple https://old.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path},https://h.example/wheels",
        "UV_INSECURE_HOST": "mirror.example lab.example",
        "UV_CONSTRAINT": "/c.txt",
        "UV_PRERELEASE": "allow",
        "UV_HTTP_TIMEOUT": "90",
        "UV_HTTP_RETRIES": "9",
        "SSL_CERT_FILE": "/site.pem",
        "SSL_CLIENT_CERT": "/me.pem",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy),
    }


def test_what_uv_was_told_itself_stays() -> None:
    environ = {"UV_INDEX_URL": "https://u.example", "UV_EXTRA_INDEX_URL": "https://e.example"}
    environ |= {"UV_INDEX_STRATEGY": "first-index", "UV_PRERELEASE": "disallow"}
    said = {"index-url": "https://p.example", "extra-index-url": "https://q.example", "pre": "1"}
    assert pip_settings.for_uv(said, environ) == {"UV_SYSTEM_CERTS": "true"}
    del environ["UV_EXTRA_INDEX_URL"]
    assert pip_settings.for_uv(said, environ) == {
        "UV_SYSTEM_CERTS": "true",
        "UV_INDEX": "https://q.example",
    }


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_certificates_that_pip_would_trust_are_uv_s(name: str, tmp_path: Path) -> None:
    assert pip_settings.for_uv({}, {name: "/site.pem"})["SSL_CERT_FILE"] == "/site.pem"
    assert pip_settings.for_uv({}, {name: str(tmp_path)})["SSL_CERT_DIR"] == str(tmp_path)


def test_without_any_setting_the_machine_s_own_certificates_count() -> None:
    assert pip_settings.for_uv({}, {"SSL_CERT_FILE": "/mine.pem"}) == {"UV_SYSTEM_CERTS": "true"}


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
def test_no_index_is_an_option_of_uv(value: str) -> None:
    """It has no variable."""
    machine = FakeMachine(env={"PIP_NO_INDEX": value, "PIP_FIND_LINKS": "/"})
    found = uv.find(machine, "amd64", SiteFiles())
    assert (found.options, found.env["UV_FIND_LINKS"]) == (("--no-index",), "/")
    assert uv.find(FakeMachine(), "amd64", SiteFiles()).options == ()
