"""Checks Python and Java; prints what is missing and how to install it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

OLDEST_JAVA = 17


def python() -> str | None:
    """Return what is wrong with this Python and how to get another, or None."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        found = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return f"found Python {found}, need 3.11 to 3.13: install one and run make PYTHON=python3.11"
    return None


def java() -> str | None:
    """Return what is missing for Spark and how to get it, or None."""
    program = shutil.which("java")
    if program is None:
        return "found no java, need Java 17 or newer: apt-get install openjdk-17-jre-headless (or brew install openjdk)"
    version = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    number = re.search(r'version "(\d+)', version)
    if number is None or int(number[1]) < OLDEST_JAVA:
        found = version.splitlines()[0] if version else "an unknown version"
        return f"found {found}, need Java 17 or newer: apt-get install openjdk-17-jre-headless"
    return None


if __name__ == "__main__":
    problem = {"python": python, "java": java}[sys.argv[1]]()
    if problem is not None:
        sys.exit(problem)
