"""Users and certificates of the tests' Kafka broker: SASL, and SASL with certificates of both sides."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

USER = "billing"
# All that has to be quoted somewhere.
PASSWORD = r"""Hunter2"b\c; d='e' ${f} #g"""
LISTENERS = {"SASL": "SASL_PLAINTEXT", "MUTUAL": "SASL_SSL"}
"""Both take ``PLAIN`` and ``SCRAM-SHA-512``; the second asks for the client's certificate, too."""


class Certificates:
    """An authority, and in ``folder``: ``ca.pem``, ``broker.pem``, ``client.pem`` and its ``client.key``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
        self.ca = self._write("ca.pem", _pem(self._signed(self._name, self._key, is_authority=True)))
        chain, key = self._issued("broker")
        self.broker = self._write("broker.pem", key + chain)
        chain, key = self._issued("client")
        self.client, self.client_key = self._write("client.pem", chain), self._write("client.key", key)

    def settings(self) -> dict[str, str]:
        """Return the settings of a client with a certificate."""
        return {
            "ssl.ca.location": str(self.ca),
            "ssl.certificate.location": str(self.client),
            "ssl.key.location": str(self.client_key),
        }

    def _issued(self, name: str) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        chain = _pem(self._signed(subject, key, is_authority=False))
        return chain, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(address, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name: str, pem: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(pem)
        return path


def broker_settings(certificates: Certificates) -> str:
    """Return what the broker's listeners need, as lines of its properties."""
    password = PASSWORD.replace("\\", r"\\").replace('"', r"\"")
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{password}";'
    # Properties have escapes of their own.
    plain = plain.replace("\\", r"\\")
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    users = "".join(
        f"listener.name.{name.lower()}.plain.sasl.jaas.config={plain}\n"
        f"listener.name.{name.lower()}.scram-sha-512.sasl.jaas.config={scram}\n"
        for name in LISTENERS
    )
    return f"""{users}sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location={certificates.broker}
ssl.truststore.type=PEM
ssl.truststore.location={certificates.ca}
listener.name.mutual.ssl.client.auth=required
"""


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)
