from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine.site import (
    CA_FILE,
    SiteFiles,
    gather_site,
    parse_apt_config,
    proxies_of,
    render_apt_conf,
)
from tests.unit.image.fakes import FakeMachine, ended

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PRIVATE = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"

DUMP = """\
Acquire "";
Acquire::Languages:: "none";
Acquire::http "";
Acquire::http::Proxy "http://me:pa55@proxy.example.org:3128";
Acquire::http::Proxy::direct.example.org "DIRECT";
Acquire::https::CaInfo "/etc/somewhere/else.pem";
Acquire::https::Verify-Peer "false";
Acquire::AllowInsecureRepositories "1";
Acquire::http::Proxy-Auto-Detect "/usr/bin/detect";
Acquire::Check-Valid-Until "false";
Acquire::Retries "";
"""


def test_apt_settings_to_carry() -> None:
    assert parse_apt_config(DUMP) == (
        ("Acquire::http::Proxy", "http://me:pa55@proxy.example.org:3128"),
        ("Acquire::http::Proxy::direct.example.org", "DIRECT"),
        ("Acquire::https::Verify-Peer", "false"),
        ("Acquire::Check-Valid-Until", "false"),
    )


@given(st.text())
def test_any_dump_is_read_and_written_safely(text: str) -> None:
    pairs = parse_apt_config(text)
    written = render_apt_conf(pairs, with_ca=False)
    assert all(line.count('"') == 2 for line in written.splitlines())
    assert "AllowInsecure" not in written


def test_gathered() -> None:
    machine = FakeMachine(
        replies={"apt-config dump Acquire": [ended(DUMP)]},
        files={
            "/own.pem": f"# a comment\n{CERTIFICATE}{PRIVATE}{CERTIFICATE}",
            "/etc/ssl/certs/ca-certificates.crt": CERTIFICATE.replace("MIIB", "other"),
        },
        env={"SSL_CERT_FILE": "/own.pem", "HTTPS_PROXY": "http://a:b@p:1", "no_proxy": "x"},
    )
    site = gather_site(machine)
    assert site.ca_pem == CERTIFICATE  # no comment, no key, nothing twice
    assert f'Acquire::https::CaInfo "{CA_FILE}";' in site.apt_conf
    assert "/etc/somewhere" not in site.apt_conf
    assert site.proxies == {"HTTPS_PROXY": "http://a:b@p:1", "NO_PROXY": "x"}


def test_a_wrong_certificate_variable_falls_back_to_the_system() -> None:
    machine = FakeMachine(
        files={"/etc/pki/tls/certs/ca-bundle.crt": CERTIFICATE},
        env={"SSL_CERT_FILE": "/gone.pem"},
        missing=("apt-config",),
    )
    assert gather_site(machine) == SiteFiles(CERTIFICATE, f'Acquire::https::CaInfo "{CA_FILE}";\n')


def test_no_certificates_no_setting() -> None:
    assert gather_site(FakeMachine(missing=("apt-config",))) == SiteFiles()


def test_a_mac_adds_what_its_administrator_installed() -> None:
    own = CERTIFICATE.replace("MIIB", "corp")
    machine = FakeMachine(
        replies={"security find-certificate": [ended(own)]},
        files={"/etc/ssl/cert.pem": CERTIFICATE},
        system=("Darwin", "24", "arm64"),
        missing=("apt-config",),
    )
    assert gather_site(machine).ca_pem == CERTIFICATE + own


def test_nothing_secret_shows() -> None:
    site = SiteFiles(
        CERTIFICATE,
        'Acquire::http::Proxy "http://u:aptpw@q:1";\n',
        {"HTTP_PROXY": "http://me:pa55@proxy:3128"},
    )
    assert "pa55" not in repr(site)
    assert "MIIB" not in repr(site)
    assert {"pa55", "me:pa55", "http://me:pa55@proxy:3128", "aptpw"} <= set(site.secrets)


def test_the_lower_case_spelling_wins() -> None:
    assert proxies_of({"http_proxy": "http://l", "HTTP_PROXY": "http://u", "ALL_PROXY": ""}) == {
        "HTTP_PROXY": "http://l"
    }
    assert SiteFiles(proxies={"HTTP_PROXY": "x"}).proxy_env() == {
        "HTTP_PROXY": "x",
        "http_proxy": "x",
    }


@pytest.mark.parametrize(
    ("site", "loopback"),
    [
        (SiteFiles(proxies={"HTTP_PROXY": "http://localhost:3128"}), True),
        (SiteFiles(proxies={"HTTP_PROXY": "127.0.0.1:3128"}), True),
        (SiteFiles(proxies={"HTTP_PROXY": "http://[::1]:3128"}), True),
        (SiteFiles(apt_conf='Acquire::http::Proxy "http://127.0.0.1:3142";\n'), True),
        (SiteFiles(proxies={"HTTP_PROXY": "http://proxy:1", "NO_PROXY": "localhost"}), False),
        (SiteFiles(apt_conf='Acquire::http::Proxy "DIRECT";\n'), False),
        (SiteFiles(proxies={"HTTP_PROXY": "http://[broken"}), False),
        (SiteFiles(), False),
    ],
)
def test_a_proxy_on_the_loopback_is_noticed(site: SiteFiles, loopback: bool) -> None:
    assert site.uses_loopback() is loopback
