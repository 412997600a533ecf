"""``rescale``."""

from __future__ import annotations

from tests.cli.shell import run


class TestRescale:
    def test_a_job_that_does_not_run_is_started_at_its_parallelism(self, job: str) -> None:
        done = run("rescale", job, "--parallelism", 4)
        assert (done.returncode, done.stdout) == (1, "")
        assert "run `start orders --parallelism 4`" in done.stderr

    def test_more_than_max_parallelism_is_refused(self, job: str) -> None:
        done = run("rescale", job, "--parallelism", 17)
        assert (done.returncode, done.stdout) == (1, "")
        assert "expected at most 16" in done.stderr
