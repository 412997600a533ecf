"""What a standalone master says about itself: ``http://<web UI>/json/``."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import msgspec

from statecore.errors import ClusterError

_TIMEOUT_S = 5.0


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker as the master sees it."""

    id: str
    state: str


class MasterPage(msgspec.Struct, frozen=True):
    """The part of the page that we read."""

    url: str
    status: str
    workers: list[WorkerRow]

    @property
    def ready_workers(self) -> int:
        """Number of workers that take work."""
        return sum(worker.state == "ALIVE" for worker in self.workers)


def read_master_page(web_url: str) -> MasterPage:
    """Ask the master.

    Raises:
        ClusterError: It does not answer, or not like a master.

    """
    parts = urlsplit(web_url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/json/")
        return msgspec.json.decode(connection.getresponse().read(), type=MasterPage)
    except (OSError, http.client.HTTPException) as error:
        raise ClusterError(
            f"the Spark master's page {web_url} does not answer: {error}; expected a running master; start "
            "it, or correct master_web_url in the cluster's settings"
        ) from error
    except msgspec.MsgspecError as error:
        raise ClusterError(
            f"{web_url}/json/ is not the page of a Spark master: {error}; expected its status as JSON; "
            "correct master_web_url in the cluster's settings"
        ) from error
    finally:
        connection.close()
