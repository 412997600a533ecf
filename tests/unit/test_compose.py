"""docker-compose.yaml: nothing here can start it, so it is held against the schema, the code and the lock."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata, resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import typer
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from statecore.catalog import Catalog
from statecore.catalog.roles import AIRFLOW, DRIVER, SUPERVISOR
from statecore.cli import app
from statecore.cluster import cluster_for
from statecore.cluster.standalone import StandaloneSettings
from statecore.operations.submit import DRIVER_CATALOG_VARIABLE
from statecore.storage import open_store
from statecore.storage.conditional_put import RACES
from tests.support.compose import COMPOSE, LISTENERS, OURS, RAW, SERVICES, addresses, commands
from tests.support.paths import REPO

CATALOG_URL = SERVICES["supervisor"]["environment"]["STATECORE_CATALOG"]
REQUIRED = re.compile(r"\$\{([A-Z0-9_]+):\?[^}]+\}")


def test_it_is_a_compose_file() -> None:
    text = resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(COMPOSE, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("edit", [{"service": {}}, {"services": {"a": {"comand": "x"}}}])
def test_the_schema_would_notice_a_mistake(edit: dict[str, Any]) -> None:
    text = resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**COMPOSE, **edit}, json.loads(text), cls=jsonschema.Draft202012Validator)


def test_every_part_of_the_system_is_a_service() -> None:
    airflow = {f"airflow-{part}" for part in ("init", "api-server", "scheduler", "dag-processor", "triggerer")}
    others = {"postgres", "catalog-init", "seaweedfs", "storage-init", "kafka", "spark-master", "supervisor"}
    assert set(SERVICES) == airflow | others


def test_every_service_that_stays_up_has_a_health_check() -> None:
    unchecked = {name for name, service in SERVICES.items() if "healthcheck" not in service}
    assert unchecked == {name for name, service in SERVICES.items() if service["restart"] == "no"}


def test_services_wait_for_services_that_exist_and_can_be_waited_for() -> None:
    for service in SERVICES.values():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other]
            else:
                assert how["condition"] == "service_completed_successfully"
                assert SERVICES[other]["restart"] == "no"


def test_every_python_command_is_in_the_repository() -> None:
    ran = [command[1:] for _, command in commands() if command[0] == "python" and command[1] != "-c"]
    assert ran
    for arguments in ran:
        if arguments[0] == "-m":
            assert (REPO / arguments[1] / "__main__.py").is_file()
        else:
            assert (REPO / arguments[0]).is_file()


def test_inline_python_compiles() -> None:
    for _, command in commands():
        if command[:2] == ["python", "-c"]:
            compile(command[2], "health check", "exec")


def test_the_command_line_takes_the_supervisors_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = SERVICES["supervisor"]
    for name in supervisor["environment"]:
        monkeypatch.setenv(name, "sqlite:///catalog.db")
    program, name, *arguments = supervisor["command"]
    assert program == "statecore"
    typer.main.get_command(app).commands[name].make_context(name, arguments)  # type: ignore[attr-defined]


def test_the_spark_master_is_in_the_installed_spark() -> None:
    script, main_class, *_ = SERVICES["spark-master"]["command"]
    installed = [Path(str(file.locate())) for file in metadata.files("pyspark") or ()]
    assert script in {file.name for file in installed if file.parent.name == "bin"}
    (core,) = (file for file in installed if file.name.startswith("spark-core_"))
    with zipfile.ZipFile(core) as jar:
        assert f"{main_class.replace('.', '/')}.class" in jar.namelist()


def test_all_processes_of_spark_share_a_secret_and_the_rest_interface_is_off() -> None:
    (defaults,) = {
        (mounted["source"], mounted["target"])
        for service in SERVICES.values()
        for mounted in service.get("configs", ())
        if mounted["source"] != "seaweedfs-users"
    }
    content = COMPOSE["configs"][defaults[0]]["content"]
    settings = dict(line.split(maxsplit=1) for line in content.splitlines() if not line.startswith("#"))
    assert (settings["spark.master.rest.enabled"], settings["spark.authenticate"]) == ("false", "true")
    assert REQUIRED.fullmatch(settings["spark.authenticate.secret"])
    # Steps of Airflow's scheduler submit rewrites.
    for name in ("spark-master", "supervisor", "airflow-scheduler"):
        service = SERVICES[name]
        assert f"{service['environment']['SPARK_CONF_DIR']}/spark-defaults.conf" == defaults[1]
        assert defaults[0] in [mounted["source"] for mounted in service["configs"]]


def test_catalog_init_registers_a_cluster_that_reaches_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    command = [sys.executable, *SERVICES["catalog-init"]["command"][1:]]
    environment = {**os.environ, "STATECORE_CATALOG": url, "PYTHONPATH": str(REPO)}
    for _ in range(2):  # the second time changes nothing
        subprocess.run(command, cwd=REPO, env=environment, check=True, timeout=180)
    with Catalog(url) as catalog:
        (cluster,) = catalog.clusters.all()
    assert cluster.desired_workers == 1
    settings = StandaloneSettings(**cluster.settings)
    cluster_for(cluster).close()
    master = SERVICES["spark-master"]["command"]
    host, port = master[master.index("--host") + 1], master[master.index("--port") + 1]
    assert settings.master_url == f"spark://{host}:{port}"
    assert settings.master_web_url == f"http://{host}:{master[master.index('--webui-port') + 1]}"
    assert settings.host == SERVICES["supervisor"]["hostname"]
    assert all(SERVICES[name]["hostname"] == name for name in (host, settings.host))


def test_whoever_needs_a_store_finds_the_gateway_of_seaweedfs_and_nothing_else_of_it() -> None:
    seaweedfs = SERVICES["seaweedfs"]
    options = dict(option.partition("=")[::2] for option in seaweedfs["command"])
    # What asks for no password is reached from nowhere; see `weed server -h` for the options.
    assert (options["-ip"], options["-ip.bind"], options["-s3.ip.bind"]) == ("127.0.0.1", "127.0.0.1", "0.0.0.0")
    assert "ports" not in seaweedfs
    (mounted,) = seaweedfs["configs"]
    assert options["-s3.config"] == mounted["target"]
    users = {user["name"]: user for user in json.loads(COMPOSE["configs"][mounted["source"]]["content"])["identities"]}
    keys = {name: tuple(user["credentials"][0].values()) for name, user in users.items()}
    assert len({key for pair in keys.values() for key in pair if REQUIRED.fullmatch(key)}) == 4
    # The user of jobs can do nothing outside their bucket, and change no bucket.
    bucket = next(word for word in SERVICES["storage-init"]["command"] if word.startswith("--bucket=")).partition("=")[
        2
    ]
    assert users["statecore"]["actions"] == [f"{right}:{bucket}" for right in ("Read", "Write", "List")]
    health = urlsplit(seaweedfs["healthcheck"]["test"][-1])
    readers = {name for name, service in SERVICES.items() if "data:/data" in service.get("volumes", ())}
    for name in {*readers, "storage-init"}:
        environment = SERVICES[name]["environment"]
        endpoint = urlsplit(environment["AWS_ENDPOINT_URL"])
        assert (endpoint.hostname, endpoint.port) == ("seaweedfs", health.port)
        used = (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
        assert used == keys["admin" if name == "storage-init" else "statecore"]


def test_storage_init_makes_a_bucket_and_tries_conditional_puts(s3_endpoint: str) -> None:
    command = [sys.executable, *SERVICES["storage-init"]["command"][1:]]
    for _ in range(2):  # the second time changes nothing
        subprocess.run(command, cwd=REPO, env={**os.environ, "PYTHONPATH": str(REPO)}, check=True, timeout=180)
    assert open_store("s3://statecore").list(RACES) == []


def test_the_broker_tells_containers_and_this_machine_where_to_find_it() -> None:
    broker = SERVICES["kafka"]
    listeners, advertised = (addresses(broker["environment"][f"KAFKA_{name}"]) for name in LISTENERS)
    assert advertised == {"CONTAINERS": ("kafka", 9092), "MACHINE": ("127.0.0.1", 9094)}
    assert broker["hostname"] == "kafka"
    assert broker["ports"] == ["127.0.0.1:9094:9094"]
    # What elects the leader is reached from nowhere.
    assert listeners == {"CONTAINERS": ("", 9092), "MACHINE": ("", 9094), "CONTROLLER": ("127.0.0.1", 9093)}
    # The image's folder of records belongs to its user.
    assert broker["volumes"] == [f"topics:{broker['environment']['KAFKA_LOG_DIRS']}"]
    health = broker["healthcheck"]["test"]
    assert health[health.index("--bootstrap-server") + 1] == "kafka:9092"


def test_the_broker_is_of_the_version_that_tests_meet() -> None:
    pom = (REPO / "scripts" / "kafka" / "pom.xml").read_text()
    (version,) = re.findall(r"<artifactId>kafka_[\d.]+</artifactId>\s*<version>([\d.]+)</version>", pom)
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version}"


def test_the_airflow_connections_are_json() -> None:
    environment = SERVICES["airflow-scheduler"]["environment"]
    catalog = json.loads(environment["AIRFLOW_CONN_STATECORE_CATALOG"])
    assert catalog["extra"]["url"].rpartition("@")[2] == CATALOG_URL.rpartition("@")[2]
    assert json.loads(environment["AIRFLOW_CONN_SPARK_DEFAULT"])["conn_type"] == "spark"


def test_airflow_and_the_catalog_have_databases_of_their_own() -> None:
    environment = SERVICES["airflow-scheduler"]["environment"]
    urls = [environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"], CATALOG_URL]
    script = (REPO / "docker" / "postgres-init.sh").read_text()
    names = [url.rsplit("/", 1)[-1] for url in urls]
    assert len(set(names)) == 2
    for name in names:
        assert f"CREATE DATABASE {name} OWNER {name};" in script


def test_supervisor_drivers_and_airflow_use_the_catalog_with_roles_of_their_own() -> None:
    supervisor, airflow = SERVICES["supervisor"]["environment"], SERVICES["airflow-scheduler"]["environment"]
    urls = {
        SUPERVISOR: supervisor["STATECORE_CATALOG"],
        DRIVER: supervisor[DRIVER_CATALOG_VARIABLE],
        AIRFLOW: json.loads(airflow["AIRFLOW_CONN_STATECORE_CATALOG"])["extra"]["url"],
    }
    script = (REPO / "docker" / "postgres-init.sh").read_text()
    for role, url in urls.items():
        found = re.fullmatch(r"postgresql\+psycopg://(\w+):(\$\{\w+:\?[^}]+\})@postgres/catalog", url)
        assert found is not None and REQUIRED.fullmatch(found[2])
        assert f"CREATE ROLE {role};" in script
        assert re.search(rf"CREATE ROLE {found[1]} LOGIN PASSWORD :'\w+' IN ROLE {role};", script)
    # The owner makes the tables, and grants.
    owner = SERVICES["catalog-init"]["environment"]["STATECORE_CATALOG"]
    assert "//catalog:" in owner and "CREATE DATABASE catalog OWNER catalog;" in script
    assert len({*urls.values(), owner}) == 4


def test_the_lock_has_a_driver_for_the_databases() -> None:
    environment = SERVICES["airflow-scheduler"]["environment"]
    Catalog(REQUIRED.sub("x", CATALOG_URL)).close()
    create_engine(REQUIRED.sub("x", environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])).dispose()
    create_async_engine(REQUIRED.sub("x", environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"]))


def test_no_password_and_no_secret_stands_in_it() -> None:
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|_KEY$", name):
                assert REQUIRED.fullmatch(value), f"{name} must be required from the environment"
            for password in re.findall(r"://[^/\s:@]+:(.*?)@", value):
                assert REQUIRED.fullmatch(password), f"{name} holds a password"


def test_every_variable_is_required_and_has_no_value_in_the_example() -> None:
    example = dict(
        line.split("=", 1)
        for line in (REPO / ".env.example").read_text().splitlines()
        if re.match(r"[A-Z0-9_]+=", line)
    )
    assert set(re.findall(r"\$\{([A-Z0-9_]+)", RAW)) == set(REQUIRED.findall(RAW)) == set(example)
    assert set(example.values()) == {""}


def test_only_this_machine_reaches_the_ports() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_named_volumes_are_declared_and_mounted_files_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (REPO / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_image_is_made_from_the_lock() -> None:
    dockerfile = (REPO / "Dockerfile").read_text()
    lock = (REPO / "requirements.lock").read_text()
    assert "--no-deps --require-hashes -r requirements.lock" in dockerfile
    for name in ("pyspark", "apache-airflow", "psycopg"):
        assert f"\n{name}=={metadata.version(name)} " in lock
        assert not re.search(rf"pip install[^\n]*\b{name}\b", dockerfile), "versions come from the lock alone"
    images = {service["image"] for service in SERVICES.values()} - {OURS}
    based = re.findall(r"^FROM (\S+)$", dockerfile, re.M)
    names = {image.partition(":")[0] for image in images}
    assert names == {"chrislusf/seaweedfs", "postgres", "apache/kafka"} and len(based) == 1
    # Down to the release: a rebuild does not bring another one.
    assert all(re.search(r"^postgres:\d+\.\d+$|seaweedfs:\d+\.\d+$|kafka:\d+\.\d+\.\d+$", image) for image in images)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm", based[0])


def test_what_the_image_copies_is_let_into_the_build() -> None:
    dockerfile = (REPO / "Dockerfile").read_text()
    copied = [source for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.M) for source in line.split()]
    ignore = (REPO / ".dockerignore").read_text().splitlines()
    assert copied
    assert {f"!{source}" for source in copied} <= set(ignore)
    assert all((REPO / source).exists() for source in copied)


def test_the_image_has_a_python_that_the_project_supports() -> None:
    (version,) = re.findall(r"^FROM python:(3\.\d+)\.\d+-", (REPO / "Dockerfile").read_text(), re.M)
    assert version in {"3.11", "3.12", "3.13"}


def test_the_shell_script_of_the_database_parses() -> None:
    subprocess.run(["bash", "-n", str(REPO / "docker" / "postgres-init.sh")], check=True, timeout=10)
