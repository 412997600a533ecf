"""The release of statecore that this process runs."""

from __future__ import annotations

from importlib.metadata import version

RELEASE = version("statecore")
"""Read once, when the process begins: an upgrade of the files under it does not change what it runs."""
