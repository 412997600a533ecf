"""Typed settings from Airflow's connections and configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from airflow.sdk import BaseHook, Connection
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException

from statecore.errors import ConfigurationError

CATALOG_CONNECTION = "statecore_catalog"
WEBHOOK_CONNECTION = "statecore_webhook"


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """SQLAlchemy URL of the catalog's database."""

    url: str

    @classmethod
    def load(cls, conn_id: str = CATALOG_CONNECTION) -> CatalogSettings:
        """Read the settings from an Airflow connection; call this in a task, not while a DAG is parsed.

        Raises:
            ConfigurationError: There is no such connection, or it has no URL.

        """
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            raise _missing(conn_id) from None
        return cls._from(connection)

    @classmethod
    async def aload(cls, conn_id: str = CATALOG_CONNECTION) -> CatalogSettings:
        """Read the settings as ``load`` does, in a trigger."""
        try:
            connection = await BaseHook.aget_connection(conn_id)
        except AirflowNotFoundException:
            raise _missing(conn_id) from None
        return cls._from(connection)

    @classmethod
    def _from(cls, connection: Connection) -> CatalogSettings:
        try:
            extra = json.loads(connection.extra or "{}")
        except json.JSONDecodeError as error:
            raise _invalid(connection.conn_id, f"an extra that is not JSON ({error})") from error
        if not isinstance(extra, dict):
            raise _invalid(connection.conn_id, f"an extra of type {type(extra).__name__}")
        url = extra.get("url")
        if not isinstance(url, str) or not url:
            raise _invalid(connection.conn_id, f"an extra with the keys {sorted(extra)}")
        return cls(url)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Address of the webhook that receives messages: a secret (knowing it is enough to post), so never log it."""

    url: str

    @classmethod
    def load(cls, conn_id: str = WEBHOOK_CONNECTION) -> WebhookSettings | None:
        """Read the settings from an Airflow connection; None when there is no such connection.

        Raises:
            ConfigurationError: The connection has no address.

        """
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            return None
        if not connection.password:
            raise ConfigurationError(
                f"found no password in the Airflow connection {conn_id!r}; expected the webhook's address there, "
                "because it is a secret; set the password, or remove the connection"
            )
        return cls(connection.password)


def logs_folder() -> Path:
    """Return the folder of the supervisor's logs, ``[statecore] logs_folder``, the only one whose files pages show.

    Raises:
        ConfigurationError: It is not set.

    """
    folder = conf.get("statecore", "logs_folder", fallback="")
    if not folder:
        raise ConfigurationError(
            "found no setting logs_folder in the section [statecore] of Airflow's configuration; expected the folder "
            "of the supervisor's logs, because pages show no other files; set it, for example as "
            "AIRFLOW__STATECORE__LOGS_FOLDER, to what the supervisor has as --logs"
        )
    return Path(folder)


def permissions_per_job() -> bool:
    """Return ``[statecore] permissions_per_job``: whether a page of a job needs a permission on that job."""
    return bool(conf.getboolean("statecore", "permissions_per_job", fallback=False))


def lease_ttl_ms() -> int:
    """Return the lifetime of a lease without renewal: ``[statecore] lease_seconds``, 300 by default.

    An abandoned run is rolled back after this time. Set it longer than Airflow takes to retry a task whose worker died
    (``[scheduler] task_instance_heartbeat_timeout``).
    """
    return int(1000 * conf.getfloat("statecore", "lease_seconds", fallback=300.0))


def lease_renewal_ms() -> int:
    """Return the interval at which a waiting run renews its lease."""
    return lease_ttl_ms() // 10


def _missing(conn_id: str) -> ConfigurationError:
    return ConfigurationError(
        f"found no Airflow connection {conn_id!r}; expected one of type generic with the catalog's URL in "
        f'its extra, {{"url": "sqlite:////path/to/catalog.db"}}; add it under Admin > Connections, or as the '
        f"environment variable AIRFLOW_CONN_{conn_id.upper()}"
    )


def _invalid(conn_id: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"found {found} in the Airflow connection {conn_id!r}; expected an extra like "
        '{"url": "sqlite:////path/to/catalog.db"}; correct the connection'
    )
