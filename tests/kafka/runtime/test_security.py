"""A job whose brokers ask for a password and a certificate: what it reads and writes, and what it tells nobody."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from stack.kafka import CONNECTOR
from statecore.supervisor import CATALOG_VARIABLE
from statecore.topics.client_settings import VARIABLE
from tests.support.bench import JOB, Bench, bench
from tests.support.jobs import secured_topics
from tests.support.kafka import KafkaBroker
from tests.support.kafka_security import LISTENERS, PASSWORD, USER
from tests.support.supervision import supervising
from tests.support.waiting import PATIENCE_S, wait

__all__ = ["bench"]

WRONG = "Hunter2Hunter2"
PAGES = ("SQL/", "SQL/execution/?id=0", "StreamingQuery/", "jobs/", "environment/", "executors/")


def settings(kafka: KafkaBroker, password: str) -> dict[str, str]:
    return {
        "security.protocol": LISTENERS["MUTUAL"],
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": password,
        # Of the sink alone.
        "transaction.timeout.ms": "30000",
        **kafka.certificates.settings(),
    }


def lines(settings: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def waiting(bench: Bench) -> int | None:
    """Return what the brokers said last; what an epoch leaves is known without them."""
    measured = bench.catalog.epochs.backlogs(JOB)
    return measured[-1].sources[0].records if measured else None


def commands() -> list[str]:
    found = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    # Brokers of other tests get their users from it.
    found = [command for command in found if "StorageTool" not in command]
    assert any(f"--job {JOB}" in command for command in found)
    return found


def pages(logs: Path) -> str:
    """Return what the newest driver shows in a browser."""
    # Not by name: the tenth driver comes before the ninth.
    written = sorted(logs.rglob("*.log"), key=lambda path: path.stat().st_mtime_ns)
    told = "".join(path.read_text(errors="replace") for path in written)
    port = re.findall(r"'SparkUI' on port (\d+)", told)[-1]
    found = (httpx.get(f"http://127.0.0.1:{port}/{page}", follow_redirects=True, timeout=PATIENCE_S) for page in PAGES)
    return "\n".join(answer.raise_for_status().text for answer in found)


def first_error(bench: Bench) -> str:
    found = bench.catalog.generations.of(JOB)
    return (found[-1].error or "") if found else ""


def test_a_job_reads_and_writes_with_password_and_certificate_and_neither_is_told_anywhere(
    bench: Bench,
    kafka: KafkaBroker,
    topic: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, events, logs = tmp_path_factory.mktemp("secret") / "kafka.properties", tmp_path / "events", tmp_path / "logs"
    events.mkdir()
    monkeypatch.setenv(VARIABLE, str(file))
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    outgoing = kafka.create(f"{topic}-passed", 2)
    bench.register(
        artifact=Path(secured_topics.__file__),
        conf={
            "spark.jars": CONNECTOR,
            "spark.log.level": "INFO",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.sql.ui.explainMode": "extended",
        },
        settings={"servers": kafka.address("MUTUAL"), "from": topic, "to": outgoing},
    )
    records = [(f"k{n % 7}", str(n)) for n in range(130)]
    kafka.produce(topic, records[:100])
    file.write_text(lines(settings(kafka, WRONG)))
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    with supervising(bench.catalog, logs):
        try:
            wait(lambda: first_error(bench), "the wrong password to be refused", 120)
            failed = first_error(bench)
            file.write_text(lines(settings(kafka, PASSWORD)))
            wait(lambda: len(kafka.read(outgoing)) >= 100, "the first records", 120)
            wait(lambda: waiting(bench) == 0, "no backlog")
            told_others = [*commands(), pages(logs)]
            bench.stop("noon")
            # While no driver runs, the supervisor asks the brokers what waits.
            kafka.produce(topic, records[100:])
            wait(lambda: waiting(bench) == 30, "what waits meanwhile")
            connection = {"conn_type": "kafka", "host": "127.0.0.1", "extra": settings(kafka, PASSWORD)}
            monkeypatch.setenv(VARIABLE, json.dumps(connection))
            bench.catalog.jobs.set_desired(JOB, state="running")
            wait(lambda: len(kafka.read(outgoing)) >= len(records), "all records", 120)
            wait(lambda: waiting(bench) == 0, "no backlog again")
            told_others += [*commands(), pages(logs)]
        finally:
            if not bench.generation().ended:
                bench.stop("end")
    assert Counter((record.key, record.value) for record in kafka.read(outgoing)) == Counter(
        (k.encode(), n.encode()) for k, n in records
    )
    assert failed.startswith("SourceError: found that Kafka does not let a source in: Authentication failed")
    assert "correct user, password and mechanism (sasl.…) in what STATECORE_KAFKA_CLIENT gives" in failed

    key = kafka.certificates.client_key.read_text().splitlines()[1]
    assert not [each for each in told_others if "Hunter2" in each or key in each]
    # A plan of the source was among the pages, and so were the driver's settings.
    assert all(word in told_others[-1] for word in ("KafkaScan", "spark.redaction.regex"))
    found = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert not [path for path, text in found.items() if b"Hunter2" in text or key.encode() in text]
    # The places that could have told them were looked at.
    told = b"".join(text for path, text in found.items() if logs in path.parents)
    for each in (b"sasl.jaas.config = [hidden]", b"kafka.ssl.keystore.key=*********(redacted)", b"StreamingRelationV2"):
        assert each in told
    assert any(events in path.parents and b"SparkListenerSQLExecutionStart" in text for path, text in found.items())
    assert json.loads(bench.newest().sources[0].positions[0])[topic]
    # Whoever asks brokers about topics has the same settings.
    assert bench.newest().sources[0].topic_ids.keys() == {topic}
    (last,) = bench.catalog.epochs.backlogs(JOB)[-1].sources
    assert last.records == 0 and last.oldest_age_ms == 0
