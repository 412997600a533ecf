"""Airflow's connections and configuration turned into typed settings."""

from __future__ import annotations

import json
from dataclasses import dataclass

from airflow.sdk import BaseHook, Connection
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException

from statecore.errors import ConfigurationError

CATALOG_CONNECTION = "statecore_catalog"
WEBHOOK_CONNECTION = "statecore_webhook"


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """Where the catalog is.

    Attributes:
        url: SQLAlchemy URL of the catalog's database.

    """

    url: str

    @classmethod
    def load(cls, conn_id: str = CATALOG_CONNECTION) -> CatalogSettings:
        """Read the settings from an Airflow connection; call it while a task runs, not while a DAG is parsed.

        Raises:
            ConfigurationError: There is no such connection, or it holds no URL.

        """
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            raise _missing(conn_id) from None
        return cls._from(connection)

    @classmethod
    async def aload(cls, conn_id: str = CATALOG_CONNECTION) -> CatalogSettings:
        """Do what ``load`` does, from a trigger."""
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
            raise _invalid(connection.conn_id, f"an extra that is no JSON ({error})") from error
        if not isinstance(extra, dict):
            raise _invalid(connection.conn_id, f"an extra that is a {type(extra).__name__}")
        url = extra.get("url")
        if not isinstance(url, str) or not url:
            raise _invalid(connection.conn_id, f"the keys {sorted(extra)} in its extra")
        return cls(url)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where messages are posted to.

    Attributes:
        url: Address of the webhook; whoever knows it may write there, so it must not get into a log.

    """

    url: str

    @classmethod
    def load(cls, conn_id: str = WEBHOOK_CONNECTION) -> WebhookSettings | None:
        """Read the settings from an Airflow connection; None when there is no such connection.

        Raises:
            ConfigurationError: It holds no address.

        """
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            return None
        if not connection.password:
            raise ConfigurationError(
                f"found no password of the Airflow connection {conn_id!r}; expected the address of a webhook there, "
                "because it is a secret; put it in, or remove the connection"
            )
        return cls(connection.password)


def lease_ttl_ms() -> int:
    """Return how long a lease on a job lasts that is not renewed: ``[statecore] lease_seconds``, 300 unless set.

    So long a job stays as a run has left it that was killed and that nobody goes on with. It has to be longer than
    Airflow takes to try a task again whose worker has died: ``[scheduler] task_instance_heartbeat_timeout``.
    """
    return int(1000 * conf.getfloat("statecore", "lease_seconds", fallback=300.0))


def lease_renewal_ms() -> int:
    """Return how often whoever waits renews a lease."""
    return lease_ttl_ms() // 10


def _missing(conn_id: str) -> ConfigurationError:
    return ConfigurationError(
        f"found no Airflow connection {conn_id!r}; expected one of type generic with the catalog's URL in "
        f'its extra, {{"url": "sqlite:////path/to/catalog.db"}}; add it under Admin > Connections or as the '
        f"environment variable AIRFLOW_CONN_{conn_id.upper()}"
    )


def _invalid(conn_id: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"found {found} of the Airflow connection {conn_id!r}; expected an extra like "
        '{"url": "sqlite:////path/to/catalog.db"}; correct the connection'
    )
