"""``make kafka`` and ``make s3mock`` say what is missing, and take no other jars than those that are listed."""

from __future__ import annotations

import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.paths import REPO

# What the recipe calls, beside what the shell has itself.
TOOLS = ("make", "sh", "mkdir", "rm", "sha256sum", "find", "wc", "touch", "python3")
MAVEN = """#!/bin/sh
# Puts one file into the folder that it is told, as Maven puts jars there.
for each; do case $each in -DoutputDirectory=*) folder=${each#*=} ;; esac; done
mkdir -p "$folder" && echo "${folder##*/}" >"$folder/one.jar"
"""
PARTS = {"kafka": ("connector", "broker"), "s3mock": ("server",)}


def make(target: str, tmp_path: Path, *, maven: str | None = None) -> subprocess.CompletedProcess[str]:
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
    shutil.copytree(REPO / "scripts" / target, tmp_path / "scripts" / target)
    sums = {part: sha256(part.encode() + b"\n").hexdigest() for part in PARTS[target]}
    listed = "".join(f"{found}  {part}/one.jar\n" for part, found in sums.items())
    (tmp_path / "scripts" / target / "SHA256SUMS").write_text(listed)
    return subprocess.run(
        # Without an installation of Python's packages.
        ["make", "-C", str(tmp_path), "-o", ".venv/.installed", target],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("target", "missed"),
    [
        ("kafka", "found no mvn: without it no test and no demo with Kafka; apt-get install maven"),
        ("s3mock", "found no mvn: without it no test of a store with two winners; apt-get install maven"),
    ],
)
def test_without_maven_it_says_so_and_what_is_missed(tmp_path: Path, target: str, missed: str) -> None:
    done = make(target, tmp_path)
    assert done.returncode == 0, done
    assert missed in done.stdout
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("target", PARTS)
@pytest.mark.parametrize(
    ("more", "is_taken"),
    [
        ("", True),
        # A jar that was altered, and one that is not listed.
        ('echo more >>"$folder/one.jar"\n', False),
        ('echo more >"$folder/two.jar"\n', False),
    ],
)
def test_only_jars_that_are_listed_are_taken(tmp_path: Path, target: str, more: str, is_taken: bool) -> None:
    done = make(target, tmp_path, maven=MAVEN + more)
    assert (done.returncode == 0) == is_taken, done
    assert (f"found other jars than those of scripts/{target}/SHA256SUMS" in done.stderr) != is_taken
    assert (tmp_path / ".venv" / target / ".fetched").exists() == is_taken
