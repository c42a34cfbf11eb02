"""A certificate for one test on loopback: made on the spot, trusted by nobody else."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from engines.installing import install_command
from harness.errors import MissingExtraError

__all__ = ["CertificateFiles", "write_certificate"]

_VALID = datetime.timedelta(days=2)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files: the certificate, which is its own authority, and its key."""

    certificate: Path
    key: Path


def write_certificate(folder: Path) -> CertificateFiles:
    """Make a key and a self-signed certificate for 127.0.0.1 and localhost.

    Raises:
        MissingExtraError: the package `cryptography` is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise MissingExtraError(
            f"a TLS truth server needs the package cryptography: {install_command('accuracy')}"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "earwitness truth server")])
    names = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = CertificateFiles(folder / "truth-cert.pem", folder / "truth-key.pem")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.touch(mode=0o600)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
