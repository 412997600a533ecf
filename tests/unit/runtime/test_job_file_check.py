"""Job files are checked before a driver runs them, here and by the supervisor."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from statecore.catalog import Catalog, RequestRecord
from statecore.errors import JobDefinitionError
from statecore.operations import job_file_check
from statecore.operations.job_file_check import JOB_FILE, QUERY_FILE, check_job_file
from statecore.operations.supervising.job_file_checks import JobFileChecks
from statecore.runtime import job_file_check as child
from statecore.snapshot.job_files import read_job_file, read_source
from statecore.storage import open_store
from tests.support.waiting import wait

SOUND = """
import os
from statecore import ProcessFunction


class Same(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


def build(job):
    print("a job file may print")
    job.source(job.settings["name"], read=print).process(Same(), output="a int", uid="same")
"""


def check(tmp_path: Path, text: str, **settings: str) -> str | None:
    path = tmp_path / "orders.py"
    path.write_text(text)
    return check_job_file(str(path), path.read_bytes(), settings, JOB_FILE)


def test_a_sound_job_file_is_built_with_its_settings(tmp_path: Path) -> None:
    assert check(tmp_path, SOUND, name="in") is None
    with pytest.raises(JobDefinitionError, match=r"orders\.py:13 in build: KeyError: 'name'; expected build\(job\)"):
        check(tmp_path, SOUND)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def build(spark, settings): ...", None),
        ("def build(spark, settings):\n    raise ValueError", None),
        (
            "\n1 / 0",
            r"found a query file that fails, .*orders\.py:2: ZeroDivisionError: .*; expected build\(",
        ),
        ("def built(spark, settings): ...", r"found no build\(spark, settings\)"),
        ("def build(:", r"orders\.py:1: SyntaxError"),
    ],
)
def test_a_query_file_is_loaded_and_its_build_not_called(tmp_path: Path, text: str, reason: str | None) -> None:
    path = tmp_path / "orders.py"
    path.write_text(text)
    if reason is None:
        assert check_job_file(str(path), path.read_bytes(), {}, QUERY_FILE) is None
    else:
        with pytest.raises(JobDefinitionError, match=reason):
            check_job_file(str(path), path.read_bytes(), {}, QUERY_FILE)


def test_a_query_file_may_need_what_is_only_where_drivers_run(tmp_path: Path) -> None:
    path = tmp_path / "orders.py"
    path.write_text("import gone_for_good\ndef build(spark, settings): ...")
    found = check_job_file(str(path), path.read_bytes(), {}, QUERY_FILE)
    assert found is not None
    assert "imports gone_for_good, which is not installed here, so build(spark, settings) was not run" in found


def test_it_runs_without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "STATECORE_CATALOG", "PGPASSWORD", "API_TOKEN"):
        monkeypatch.setenv(name, "secret")
    with pytest.raises(JobDefinitionError) as refused:
        check(tmp_path, "import os\nraise ValueError(os.environ)\n")
    assert "PYTHONPATH" in str(refused.value) and "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def build(job:\n", r"orders\.py:1: SyntaxError: .* was never closed; expected"),
        ("def build(job):\n    job.source('a b', read=print)\n", r"orders\.py:2 in build: found the"),
        ("def build(job):\n    exit(3)\n", r"orders\.py:2 in build: SystemExit: 3; expected"),
        ("import statecore.nothing\n", r"orders\.py:1: ModuleNotFoundError"),
    ],
)
def test_a_wrong_job_file_is_refused_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(JobDefinitionError, match=reason):
        check(tmp_path, text)


def test_one_that_does_not_return_is_ended(tmp_path: Path) -> None:
    assert child.TIMEOUT_S <= 30
    hangs = ("-c", "import signal; signal.alarm(1); signal.pause()")
    path = tmp_path / "orders.py"
    path.write_text(SOUND)
    with pytest.raises(JobDefinitionError, match="did not return in time"):
        check_job_file(str(path), path.read_bytes(), {}, JOB_FILE._replace(child=hangs))


def test_one_in_a_store_is_fetched_first_and_named_by_its_url(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text("x = 1\n")
    url = f"file://{tmp_path}/orders.py"
    with pytest.raises(JobDefinitionError, match=rf"^found no build\(job\) in {url}; expected one; define it"):
        check_job_file(url, read_source(url), {}, JOB_FILE)
    with pytest.raises(JobDefinitionError, match="found no job file"):
        read_source(f"file://{tmp_path}/typo.py")


def test_without_pyspark_only_the_syntax_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "only the syntax" in str(check(tmp_path, "x = 1\n"))
    with pytest.raises(JobDefinitionError, match="SyntaxError"):
        check(tmp_path, "x = (\n")


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    store, settings = str(tmp_path / "store"), {"name": "in"}
    with Catalog(catalog_url) as opened:
        opened.jobs.register(
            "j", artifact="/a", store=store, master_url="m", parallelism=1, max_parallelism=1, settings=settings
        )
        yield opened


def answer(catalog: Catalog, path: Path | str, key: str, *roots: Path | str) -> RequestRecord:
    request = catalog.requests.send("j", "check_job_file", {"artifact": str(path)}, key).id
    # It is the supervisor's; a driver would take what it does not know for a request to stop.
    assert catalog.requests.take_next("j") is None
    checks = JobFileChecks(catalog, [str(root) for root in roots])

    def is_answered() -> bool:
        checks.answer()
        return catalog.requests.get(request).state != "pending"

    wait(is_answered, "the answer")
    return catalog.requests.get(request)


def test_the_supervisor_checks_with_the_settings_of_the_job(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text(SOUND)
    assert answer(catalog, path, "1", tmp_path).state == "done"
    path.write_text("import not_installed_here\n")
    refused = str(answer(catalog, path, "2", tmp_path).error)
    assert "new.py:1 imports not_installed_here" in refused and "install it on the supervisor's machine" in refused


def test_the_supervisor_keeps_a_copy_of_a_sound_file_and_answers_with_its_digest(
    catalog: Catalog, tmp_path: Path
) -> None:
    path, files = tmp_path / "new.py", open_store(str(tmp_path / "store"))
    path.write_text(SOUND)
    assert answer(catalog, path, "1", tmp_path).result == {"sha256": (digest := sha256(SOUND.encode()).hexdigest())}
    path.write_text("x = 1\n")
    assert read_job_file(files, str(path), digest) == SOUND.encode()
    assert answer(catalog, path, "2", tmp_path).state == "failed" and len(list(files.list("job-files"))) == 1


def test_a_file_outside_the_folders_of_job_files_is_refused_before_it_runs(catalog: Catalog, tmp_path: Path) -> None:
    allowed, secret, ran = tmp_path / "allowed", tmp_path / "secret", tmp_path / "ran"
    for folder in (allowed, secret):
        folder.mkdir()
    evil = secret / "evil.py"
    evil.write_text(f"open({str(ran)!r}, 'w')\n{SOUND}")
    (allowed / "link.py").symlink_to(evil)
    asked: list[str] = [str(evil), str(allowed / "link.py"), f"{allowed}/../secret/evil.py", f"file://{evil}"]
    for number, path in enumerate([*asked, f"{allowed}-too/evil.py"]):
        refused = answer(catalog, path, str(number), allowed)
        assert refused.state == "failed" and f"expected it below {allowed}" in str(refused.error), path
    assert "registered for the job before" in str(answer(catalog, evil, "none").error)
    assert not ran.exists()


def test_the_supervisor_does_not_say_which_files_are_outside_its_folders(catalog: Catalog, tmp_path: Path) -> None:
    (there := tmp_path / "there.py").write_text("no Python")
    folder, loop = tmp_path / "folder.py", tmp_path / "loop.py"
    folder.mkdir()
    loop.symlink_to(loop)
    # The bucket would be asked for with the supervisor's credentials.
    outside = [str(there), str(tmp_path / "none.py"), str(folder), str(loop), "s3://somebody-elses/a.py"]
    answers = [(path, str(answer(catalog, path, path, tmp_path / "allowed").error)) for path in outside]
    assert len({error.replace(path, "") for path, error in answers}) == 1, answers


def test_a_file_that_was_registered_before_is_accepted_from_where_it_was(catalog: Catalog, tmp_path: Path) -> None:
    (path := tmp_path / "old.py").write_text(SOUND)
    job = catalog.jobs.get("j")
    for artifact, source in ((str(path), SOUND), ("/new.py", "x = 1")):
        catalog.job_files.permit(replace(job, artifact=artifact, artifact_sha256=sha256(source.encode()).hexdigest()))
    assert answer(catalog, path, "1").state == "done"
    path.write_text(f"{SOUND}# another\n")
    assert "registered for the job before" in str(answer(catalog, path, "2").error)


def test_a_file_that_the_supervisor_has_accepted_may_run_and_no_other(catalog: Catalog, tmp_path: Path) -> None:
    (path := tmp_path / "new.py").write_text(SOUND)
    digest = sha256(SOUND.encode()).hexdigest()
    new = replace(catalog.jobs.get("j"), artifact=str(path), artifact_sha256=digest)
    with pytest.raises(JobDefinitionError, match=f"found the job file {path} with the SHA-256 {digest}"):
        catalog.job_files.require_permitted(new)
    answer(catalog, path, "1", tmp_path)
    catalog.job_files.require_permitted(new)
    for other in (replace(new, name="k"), replace(new, artifact="/a"), replace(new, artifact_sha256=None)):
        with pytest.raises(JobDefinitionError, match="it was not run"):
            catalog.job_files.require_permitted(other)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("import os\ndef build(job):\n    os._exit(0)\n", "ended with 0 and without an answer"),
        ("import atexit\natexit.register(print, 'bye')\ndef build(job):\n    pass\n", "without an answer"),
        ("import os\ndef build(job):\n    os.write(2, bytes([255]))\n    os._exit(3)\n", "ended with 3"),
    ],
    ids=["no output", "other output", "no text"],
)
def test_a_child_that_does_not_answer_is_an_error_of_the_job_file(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(content)
    with pytest.raises(JobDefinitionError, match=message):
        check_job_file(str(path), path.read_bytes(), {}, JOB_FILE)


def test_what_a_job_file_leaves_running_does_not_hold_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.py"
    path.write_text("import subprocess\ndef build(job):\n    subprocess.Popen(['sleep', '300'])\n")
    monkeypatch.setattr(job_file_check, "_TIMEOUT_S", 2.0)
    with pytest.raises(JobDefinitionError, match="did not return in time"):
        check_job_file(str(path), path.read_bytes(), {}, JOB_FILE)
