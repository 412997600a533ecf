"""``explain``: what an alert means, and what to do."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer
from rich.markdown import Markdown

from statecore.cli.options import AsJson
from statecore.cli.output import console, print_json, table
from statecore.errors import ConfigurationError
from statecore.operations.status.runbook import runbook

_HEAD = re.compile(r"\*\*(\w+)\.\*\* (.*?[.:])(?:\s|$)", re.DOTALL)

AlertName = Annotated[str, typer.Argument(help="Name of the alert, as in its message; without it, all are listed.")]


def explain(alert: AlertName = "", as_json: AsJson = False) -> None:
    """Print what an alert means and what to do: its entry in the runbook."""
    entries = runbook()
    if alert and alert not in entries:
        raise ConfigurationError(
            f"found no alert {alert!r}; expected one of {', '.join(entries)}; correct the name, or list them with "
            "`statecore explain`"
        )
    if as_json:
        print_json({alert: entries[alert]} if alert else entries)
    elif not alert:
        made = table("alert", "severity", "meaning")
        for name, text in entries.items():
            head = _HEAD.match(text)
            assert head is not None, name
            made.add_row(name, head[1].lower(), " ".join(head[2].split()))
        console().print(made)
    elif sys.stdout.isatty():
        console().print(Markdown(f"## {alert}\n\n{entries[alert]}"))
    else:
        print(f"{alert}\n\n{entries[alert]}")
