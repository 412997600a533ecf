"""Reads the status page of a Spark standalone master, ``http://<web UI>/json/``."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import msgspec

from statecore.errors import ClusterBusyError, ClusterError

_TIMEOUT_S = 5.0


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker in the master's list."""

    id: str
    state: str


class MasterPage(msgspec.Struct, frozen=True):
    """The fields of the page that statecore uses."""

    url: str
    status: str
    workers: list[WorkerRow]

    @property
    def ready_workers(self) -> int:
        """Number of workers in state ALIVE."""
        return sum(worker.state == "ALIVE" for worker in self.workers)


def read_master_page(web_url: str) -> MasterPage:
    """Fetch the page; ClusterBusyError when the master does not answer, ClusterError for another page."""
    parts = urlsplit(web_url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/json/")
        return msgspec.json.decode(connection.getresponse().read(), type=MasterPage)
    except (OSError, http.client.HTTPException) as error:
        raise ClusterBusyError(
            f"found no answer from the Spark master's page {web_url}: {error}; expected a running master; start "
            "it, or correct master_web_url in the cluster's settings"
        ) from error
    except msgspec.MsgspecError as error:
        raise ClusterError(
            f"found an unknown answer at {web_url}/json/: {error}; expected the status of a Spark master as JSON; "
            "correct master_web_url in the cluster's settings"
        ) from error
    finally:
        connection.close()
