"""The steps of a rescale from a shell: the same as Airflow's, one after the other in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from statecore.catalog import Catalog, GenerationRecord, JobRecord
from statecore.catalog.records import RescaleMethod
from statecore.cli.driver import POLL_S, answer, log_of
from statecore.cli.lease import HeldLease
from statecore.cli.output import note, spinner
from statecore.cli.rewrite import LEAST_TIMEOUT_S, rewritten
from statecore.cli.stop import stop_with_savepoint
from statecore.errors import RequestFailedError
from statecore.operations.resizing import Resizing
from statecore.operations.verification import Verification, patience_ms
from statecore.snapshot.checkpoints import CheckpointStore

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a rescale is to lead to.

    Attributes:
        parallelism: Subtasks.
        workers: Size of the cluster; None leaves it.
        max_parallelism: Key groups; None leaves them.
        reason: Why.
        timeout_s: Seconds that each step may take.

    """

    parallelism: int
    workers: int | None
    max_parallelism: int | None
    reason: str
    timeout_s: float


class Rescale:
    """One rescale of one job.

    Args:
        catalog: Where all is recorded.
        job: The job as it was before.
        lease: Held on it.
        run: Id of the run.
        wish: What it leads to.

    """

    def __init__(self, catalog: Catalog, job: JobRecord, lease: HeldLease, run: str, wish: Wish) -> None:
        self._catalog = catalog
        self._job = job
        self._lease = lease
        self._run = run
        self._wish = wish
        self._workers = None if job.cluster is None else catalog.cluster(job.cluster).desired_workers

    def carry_out(self, method: RescaleMethod) -> str:
        """Rescale, and return in words what came of it; a run that fails is rolled back.

        Raises:
            StatecoreError: It failed; the job runs at its old size again.

        """
        wish = self._wish
        self._catalog.start_rescale_run(
            self._run,
            self._job.name,
            from_parallelism=self._job.parallelism,
            to_parallelism=wish.parallelism,
            from_workers=self._workers,
            to_workers=self._workers if wish.workers is None else wish.workers,
            method=method,
            reason=wish.reason,
        )
        try:
            told = self._live() if method == "live" else self._restarted(method)
            self._verify()
        except BaseException as error:
            # Also when whoever waits here has had enough: a job must not stay stopped half way.
            self._roll_back(str(error) or type(error).__name__)
            raise
        self._catalog.finish_rescale_run(self._run)
        return told

    def _live(self) -> str:
        self._grow()
        with self._step("rescale_live", f"waiting for parallelism {self._wish.parallelism} to be taken up"):
            asked = {"parallelism": self._wish.parallelism}
            request = self._catalog.request(self._job.name, "rescale", asked, f"{self._run}/rescale_live")
            failed = f"{self._job.name} was not rescaled"
            # It is taken up between two epochs, so the one that runs has to end first.
            timeout_s = max(self._wish.timeout_s, patience_ms(self._catalog, self._job.name) / 1000)
            result = answer(self._catalog, request, timeout_s, failed, give_up=True)
        self._shrink()
        after = "none yet" if result["after_epoch"] is None else str(result["after_epoch"])
        sizes = f"{result['from_parallelism']} -> {result['parallelism']}"
        return f"{self._job.name}: parallelism {sizes} after epoch {after}"

    def _restarted(self, method: RescaleMethod) -> str:
        savepoint = self._stop()
        self._grow()
        wishes: dict[str, Any] = {"start_from": None}
        if method == "rewrite":
            wishes = self._rewrite(savepoint)
        generation = self._restart(wishes)
        self._shrink()
        return (
            f"{self._job.name}: parallelism {self._job.parallelism} -> {self._wish.parallelism}, {method}; generation "
            f"{generation.generation} runs; stopped with savepoint {savepoint}"
        )

    def _stop(self) -> str:
        with self._step("stop_with_savepoint"):
            savepoint = stop_with_savepoint(self._catalog, self._job.name, self._wish.timeout_s, self._wish.reason)
            if savepoint is None:
                raise RequestFailedError(
                    f"found that the driver of {self._job.name} died meanwhile; expected it to stop with a savepoint; "
                    "try again when the next one runs"
                )
            self._catalog.update_rescale_run(self._run, savepoint=savepoint)
            return savepoint

    def _rewrite(self, savepoint: str) -> dict[str, Any]:
        wish = self._wish
        with self._step("rewrite_state", "Spark lays the state out anew"):
            timeout_s = max(wish.timeout_s, LEAST_TIMEOUT_S)
            name = f"{self._run}-rewritten"
            path = rewritten(self._job, savepoint, name, wish.parallelism, wish.max_parallelism, timeout_s)
            store = CheckpointStore.at(self._job.store)
            url, manifest = store.describe(path), store.manifest(path)
            self._catalog.record_savepoint(
                url,
                job=self._job.name,
                lineage=manifest.lineage,
                epoch=manifest.epoch,
                parallelism=manifest.parallelism,
                reason=wish.reason,
            )
            self._catalog.update_rescale_run(self._run, rescaled=url)
        return {"start_from": url, "max_parallelism": wish.max_parallelism}

    def _restart(self, wishes: dict[str, Any]) -> GenerationRecord:
        """Have the job started at its new parallelism, which takes its state by reference, and wait until it runs."""
        with self._step("restart", "waiting for a driver at the new parallelism"):
            before = self._newest()
            after = 0 if before is None else before.generation
            name = self._job.name
            self._catalog.set_desired(name, state="running", parallelism=self._wish.parallelism, **wishes)
            return self._until(lambda: self._running(after), f"a driver of {name} that reports to be running")

    def _running(self, after: int) -> GenerationRecord | None:
        """Return the new generation when it runs.

        Raises:
            RequestFailedError: One failed: the next would do so, too.

        """
        newer = [each for each in self._catalog.generations(self._job.name, limit=10) if each.generation > after]
        for each in newer:
            if each.state == "failed":
                raise RequestFailedError(
                    f"found that generation {each.generation} of {self._job.name} failed: {each.error}; expected it to "
                    f"run at parallelism {self._wish.parallelism}; look at its log {each.log_path}"
                )
        return newer[0] if newer and newer[0].state == "running" else None

    def _verify(self) -> None:
        """Wait until the job does as well as before, for its size."""
        verification = Verification(self._job.name, self._run, self._wish.parallelism)
        with self._step("verify", "waiting until it keeps up"):
            self._until(
                lambda: verification.look(self._catalog).is_healthy,
                f"{self._job.name} to keep up at its new parallelism",
                lambda: verification.found,
                at_least_s=patience_ms(self._catalog, self._job.name) / 1000,
            )

    def _grow(self) -> None:
        """Have the workers there before they are needed."""
        cluster, workers = self._job.cluster, self._wish.workers
        if cluster is None or workers is None or self._workers is None or workers <= self._workers:
            return
        with self._step("resize_cluster", f"waiting for {workers} workers"):
            self._catalog.set_desired_workers(cluster, workers)
            resizing = Resizing(workers)
            self._until(
                lambda: resizing.is_done(self._catalog.cluster(cluster)),
                f"{workers} ready workers in cluster {cluster}",
            )

    def _shrink(self) -> None:
        """Let workers go that are needed no more; the supervisor sees to it, and nobody has to wait."""
        cluster, workers = self._job.cluster, self._wish.workers
        if cluster is None or workers is None or self._workers is None or workers >= self._workers:
            return
        with self._step("shrink_cluster"):
            self._catalog.set_desired_workers(cluster, workers)

    def _until(
        self,
        look: Callable[[], _T | None],
        expected: str,
        seen: Callable[[], str] = lambda: "none",
        at_least_s: float = 0.0,
    ) -> _T:
        timeout_s = max(self._wish.timeout_s, at_least_s)
        deadline = time.monotonic() + timeout_s
        while not (found := look()):
            self._lease.check()
            if time.monotonic() > deadline:
                raise RequestFailedError(
                    f"found {seen()} after {timeout_s:g} s; expected {expected}; see that the supervisor "
                    f"runs, and look at the log {log_of(self._catalog, self._job.name)}"
                )
            time.sleep(POLL_S)
        return found

    def _roll_back(self, error: str) -> None:
        said = f"rolled back to parallelism {self._job.parallelism}, to go on from its newest epoch"
        self._lease.roll_back(f"{error}; {said}")
        self._catalog.finish_rescale_run(self._run, error=f"{error}; {said}")
        note(f"{self._job.name} is {said}")

    def _newest(self) -> GenerationRecord | None:
        return self._catalog.newest_generation(self._job.name)

    @contextmanager
    def _step(self, name: str, doing: str | None = None) -> Iterator[None]:
        self._lease.check()
        self._catalog.mark_step(self._run, name, started=True)
        if doing is None:
            yield
        else:
            with spinner(f"{self._job.name}: {doing}"):
                yield
        self._catalog.mark_step(self._run, name, ended=True)
