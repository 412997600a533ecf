"""The steps of an upgrade that a rescale does not have: check the new job file, and replace the old one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from statecore.errors import ConfigurationError, JobDefinitionError, MissingFileError
from statecore.operations.rescaling.change import out_of_order
from statecore.operations.rescaling.lease import TakeLease
from statecore.operations.rescaling.step import Step
from statecore.operations.rescaling.stop import StopWithSavepoint
from statecore.storage import open_store, split_url


@dataclass(kw_only=True)
class BeginUpgrade(TakeLease):
    """Checks the new job file, takes the lease, and records a run that keeps parallelism and workers.

    Attributes:
        artifact: The new job file: an absolute path or a URL.
        reason: Why, for the history.

    """

    artifact: str
    reason: str = ""

    def check(self) -> None:
        """Refuse a broken job file, and a job that does not run."""
        job = self.change.catalog.job(self.change.job)
        if job.desired_state != "running":
            raise ConfigurationError(
                f"found job {job.name!r} stopped; expected it to run, because an upgrade is verified on the running "
                "job; start it first, or register it again with the new job file"
            )
        check_job_file(self.artifact)

    def ask(self) -> None:
        """Record the run."""
        job = self.change.catalog.job(self.change.job)
        reason = f"upgrade to {self.artifact}"
        reason = f"{reason}: {self.reason}" if self.reason else reason
        self.record_run(job, job.parallelism, None, "by_reference", reason)


@dataclass(kw_only=True)
class ReplaceArtifact(Step):
    """Has the stopped job run the new job file from its savepoint on.

    Attributes:
        artifact: The new job file.

    """

    name = "replace_artifact"

    artifact: str

    def finish(self) -> None:
        """Record the new job file; the restart takes the savepoint as it is."""
        run, catalog = self.required_run(), self.change.catalog
        if run.savepoint is None:
            raise out_of_order(run.run_id, "savepoint", StopWithSavepoint.name)
        old = catalog.job(self.change.job).artifact
        self.change.log.info("Job %s: %s replaces %s", self.change.job, self.artifact, old)
        # The permission to leave state behind was given to the old job file, perhaps by a rollback.
        catalog.set_desired(self.change.job, artifact=self.artifact, allow_non_restored_state=False)


def check_job_file(artifact: str) -> None:
    """Check that a path or URL leads to a Python file that defines ``build``; the file is parsed and not run.

    Raises:
        JobDefinitionError: It does not.
        StorageError: Its store cannot be reached.

    """
    if "://" not in artifact and not artifact.startswith("/"):
        raise JobDefinitionError(
            f"found the job file {artifact!r}; expected an absolute path or a URL, because drivers are started "
            "elsewhere; give the whole path"
        )
    folder, name = split_url(artifact)
    try:
        tree = ast.parse(open_store(folder).read(name))
    except MissingFileError:
        raise JobDefinitionError(
            f"found no job file {artifact}; expected a Python file that defines build(job); correct the path"
        ) from None
    except (SyntaxError, ValueError) as error:
        raise JobDefinitionError(
            f"found {artifact}, which is no Python file ({error}); expected one that defines build(job); correct it"
        ) from error
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imported = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    if "build" not in names | imported:
        raise JobDefinitionError(
            f"found {artifact}, which defines {sorted(names) or 'no function'}; expected build(job); add it, or "
            "correct the path"
        )
