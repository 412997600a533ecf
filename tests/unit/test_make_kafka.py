"""``make kafka`` says what is missing, and takes no other jars than those that are listed."""

from __future__ import annotations

import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.paths import REPO

# What the recipe calls, beside what the shell has itself.
TOOLS = ("make", "sh", "mkdir", "rm", "sha256sum", "ls", "wc", "touch", "python3")
MAVEN = """#!/bin/sh
# Puts one file into the folder that it is told, as Maven puts jars there.
for each; do case $each in -DoutputDirectory=*) folder=${each#*=} ;; esac; done
mkdir -p "$folder" && echo "${folder##*/}" >"$folder/one.jar"
"""
SUMS = {part: sha256(part.encode() + b"\n").hexdigest() for part in ("connector", "broker")}
LISTED = "".join(f"{found}  {part}/one.jar\n" for part, found in SUMS.items())


def make_kafka(tmp_path: Path, *, maven: str | None = None) -> subprocess.CompletedProcess[str]:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    if maven is not None:
        (tools / "mvn").write_text(maven)
        (tools / "mvn").chmod(0o755)
    shutil.copy(REPO / "Makefile", tmp_path)
    shutil.copytree(REPO / "scripts" / "kafka", tmp_path / "scripts" / "kafka")
    (tmp_path / "scripts" / "kafka" / "SHA256SUMS").write_text(LISTED)
    return subprocess.run(
        # Without an installation of Python's packages.
        ["make", "-C", str(tmp_path), "-o", ".venv/.installed", "kafka"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_maven_it_says_so_and_what_is_missed(tmp_path: Path) -> None:
    done = make_kafka(tmp_path)
    assert done.returncode == 0, done
    assert "found no mvn: without it no test and no demo with Kafka; apt-get install maven" in done.stdout
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("more", "is_taken"),
    [
        ("", True),
        # A jar that was altered, and one that is not listed.
        ('echo more >>"$folder/one.jar"\n', False),
        ('echo more >"$folder/two.jar"\n', False),
    ],
)
def test_only_jars_that_are_listed_are_taken(tmp_path: Path, more: str, is_taken: bool) -> None:
    done = make_kafka(tmp_path, maven=MAVEN + more)
    assert (done.returncode == 0) == is_taken, done
    assert ("found other jars than those of scripts/kafka/SHA256SUMS" in done.stderr) != is_taken
    assert (tmp_path / ".venv" / "kafka" / ".fetched").exists() == is_taken
