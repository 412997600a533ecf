"""The runbook: what each alert means and what to do; the page ``docs/alerts.md``, which is part of the package."""

from __future__ import annotations

import re
from importlib.resources import files

_ENTRY = re.compile(r"^## (\w+_\w+)\n\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def runbook() -> dict[str, str]:
    """Return the text of each entry, Markdown without links, by name of its alert."""
    page = (files(__package__) / "runbook.md").read_text(encoding="utf-8")
    return {name: _LINK.sub(r"\1", text.strip()) for name, text in _ENTRY.findall(page)}
