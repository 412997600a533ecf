"""Settings of Kafka clients for Spark's connector, which uses Kafka's Java client; and refusals by brokers.

Files are read on the driver and passed on by content, so that executors need none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from statecore.errors import JobDefinitionError, SourceError
from statecore.topics.client_settings import VARIABLE, ClientSettings

_SECURITY = re.compile(r"(enable\.)?(security|sasl|ssl)\.")
_KNOWN = {
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location",
    "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem",
    "ssl.key.password", "ssl.endpoint.identification.algorithm",
}  # fmt: skip
_LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# PKCS#8, which is the one form that Java reads.
_KEY = re.compile(r"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----.+?-----END (?:ENCRYPTED )?PRIVATE KEY-----", re.DOTALL)
# A quoted value ends at a line break.
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_REFUSED = re.compile(r"\bkafka\.common\.errors\.(Sasl|Ssl)AuthenticationException: (.+?)(?: SQLSTATE|\n|$)")
_BY_HAND = "or give Spark's connector its options yourself, in `read`"


def kafka_options(servers: str) -> dict[str, str]:
    """Return the options with which Spark's connector reads from brokers that ask for passwords or certificates.

    ``spark.readStream.format("kafka").options(**kafka_options(servers))``

    The settings are those of ``KafkaSink``, which ``STATECORE_KAFKA_CLIENT`` gives; see ``docs/kafka.md``. Those of
    security are translated: SASL with PLAIN or SCRAM, TLS, and client certificates in PEM. Others concern the sink.
    The options hold secrets: print them nowhere.

    Args:
        servers: ``host:port`` of one or more brokers, with commas between.

    Raises:
        JobDefinitionError: The settings cannot be read, or one of security has no counterpart in Java.

    """
    settings = ClientSettings.of(servers).more
    security = {name: value for name, value in settings.items() if _SECURITY.match(name)}
    # It is on unless a setting turns it off.
    if security.get("enable.ssl.certificate.verification", "").lower() in ("true", "1"):
        del security["enable.ssl.certificate.verification"]
    unknown = sorted(security.keys() - _KNOWN)
    if unknown:
        raise JobDefinitionError(
            f"found {', '.join(unknown)} in the settings of {VARIABLE}; expected names that a source has, too: "
            f"{', '.join(sorted(_KNOWN))}; remove the others, {_BY_HAND}"
        )
    protocol = security.get("security.protocol", "PLAINTEXT").upper()
    options = {"bootstrap.servers": servers, "security.protocol": protocol}
    if protocol.startswith("SASL_"):
        options |= _sasl(security)
    if protocol.endswith("SSL"):
        options |= _tls(security)
    return {f"kafka.{name}": value for name, value in options.items()}


def _sasl(settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "none"))
    if mechanism not in _LOGIN_MODULES:
        raise JobDefinitionError(
            f"found the sasl.mechanism {mechanism} in the settings of {VARIABLE}; expected one of "
            f"{', '.join(_LOGIN_MODULES)}; correct it, {_BY_HAND}"
        )
    missing = [name for name in ("sasl.username", "sasl.password") if name not in settings]
    if missing:
        raise JobDefinitionError(
            f"found no {' and no '.join(missing)} in the settings of {VARIABLE}; expected both for {mechanism}; add it"
        )
    user, password = (settings[name].translate(_ESCAPES) for name in ("sasl.username", "sasl.password"))
    module = f"org.apache.kafka.common.security.{_LOGIN_MODULES[mechanism]}"
    jaas = f'{module} required username="{user}" password="{password}";'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def _tls(settings: Mapping[str, str]) -> dict[str, str]:
    options = dict[str, str]()
    authorities = _pem(settings, "ssl.ca", _CERTIFICATE, "certificates")
    if authorities is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    chain = _pem(settings, "ssl.certificate", _CERTIFICATE, "certificates")
    key = _pem(
        settings, "ssl.key", _KEY, "a private key in PKCS#8, which `openssl pkcs8 -topk8 -in FILE -out FILE` makes"
    )
    if (chain is None) != (key is None):
        raise JobDefinitionError(
            f"found a client certificate without its key, or a key without its certificate, in the settings of "
            f"{VARIABLE}; expected both; add ssl.{'certificate' if chain is None else 'key'}.location"
        )
    if chain is not None and key is not None:
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
        if "ssl.key.password" in settings:
            options["ssl.key.password"] = settings["ssl.key.password"]
    checked = settings.get("ssl.endpoint.identification.algorithm")
    if checked is not None:
        options["ssl.endpoint.identification.algorithm"] = "" if checked == "none" else checked
    return options


def _pem(settings: Mapping[str, str], name: str, block: re.Pattern[str], expected: str) -> str | None:
    """Return the PEM blocks of a setting, which contains them or names their file; None without it."""
    text, path = settings.get(f"{name}.pem"), settings.get(f"{name}.location")
    setting = f"{name}.pem"
    if text is None:
        if path is None:
            return None
        setting = f"{name}.location={path}"
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeError) as error:
            raise JobDefinitionError(
                f"found {setting} in the settings of {VARIABLE}: {error}; expected a file with {expected}, as PEM; "
                "correct the path, or grant the driver's user access"
            ) from error
    blocks = block.findall(text)
    if not blocks:
        raise JobDefinitionError(
            f"found none in {setting} in the settings of {VARIABLE}; expected {expected}, as PEM; correct it"
        )
    return "\n".join(blocks)


def kafka_refusal(error: BaseException | None) -> SourceError | None:
    """Return the error to raise if brokers refused Spark's client; None for any other error of Spark's."""
    match = _REFUSED.search(str(error))
    if match is None:
        return None
    names = "user, password and mechanism (sasl.…)" if match[1] == "Sasl" else "protocol and certificates (ssl.…)"
    refusal = SourceError(
        f"found that Kafka does not let a source in: {match[2]}; expected settings that the brokers accept; correct "
        f"{names} in what {VARIABLE} gives, or in the options in `read`; the next driver reads them"
    )
    refusal.__cause__ = error
    return refusal
