"""The certificate of the join service: made by itself, known by its digest in each token."""

from __future__ import annotations

import hashlib
import ssl
from datetime import datetime, timedelta, timezone
from pathlib import Path

from dshpc_setup.files.atomic import write_atomic
from dshpc_setup.project.folder import Project

CERTIFICATE, KEY = "certificate.pem", "key.pem"
_DAYS = 3650  # the tokens end long before
_NAME = "dshpc-join"


def make(project: Project, folder: Path) -> str:
    """A new one, and its key, which the owner alone can read; its pin."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_atomic(folder / KEY, private.decode(), 0o600, owner=project.owner)
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    write_atomic(folder / CERTIFICATE, pem, 0o600, owner=project.owner)
    return pin_of(made.public_bytes(serialization.Encoding.DER))


def pin_of(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()


def there(folder: Path) -> str | None:
    """The pin of the one that is there; None where there is none that can be used."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            folder / CERTIFICATE, folder / KEY
        )
        return pin_of(ssl.PEM_cert_to_DER_cert((folder / CERTIFICATE).read_text("ascii")))
    except (OSError, ValueError):
        return None


def for_service(folder: Path) -> ssl.SSLContext:
    """Raises OSError where there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    return context


def for_client() -> ssl.SSLContext:
    """Who answers is known by the pin, which the caller compares, and by no authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
