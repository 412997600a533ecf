"""``state``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape

from statecore.catalog import Catalog
from statecore.cli.options import AsJson, CatalogUrl, JobName, absolute
from statecore.cli.output import NOTHING, console, print_json, table, utc
from statecore.operations.state_of_key import MOST_SHOWN, Content, look_up


def show_state(
    job: JobName,
    key: Annotated[
        str,
        typer.Option(
            help="The key; of several columns, separated by commas, or as a JSON array, where null is null. Timestamps "
            "are UTC, bytes hexadecimal."
        ),
    ],
    catalog: CatalogUrl,
    uid: Annotated[str | None, typer.Option(help="The operator; may be left out if one alone has keyed state.")] = None,
    state: Annotated[str | None, typer.Option(help="Name of a state; all by default.")] = None,
    window: Annotated[int | None, typer.Option(help="Start of a window in ms; all by default.")] = None,
    savepoint: Annotated[str | None, typer.Option(help="A savepoint's path; the newest epoch by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what a key has in state, as of the newest committed epoch or a savepoint."""
    with Catalog(catalog) as opened:
        record = opened.jobs.get(job)
    path = None if savepoint is None else absolute(savepoint)
    found = look_up(record, key, uid, state=state, savepoint=path, most=None if as_json else MOST_SHOWN)
    contents = [each for each in found.contents if window in (None, each.window_start_ms)]
    if as_json:
        print_json({**{name: getattr(found, name) for name in found.__struct_fields__}, "contents": contents})
        return
    screen = console()
    where = f"epoch {found.epoch} of lineage {found.lineage}, committed {utc(found.committed_ms)} UTC"
    key_text = ", ".join(f"{name} {value}" for name, value in found.key.items())
    screen.print(escape(f"{found.uid}, key {key_text}: {where}"))
    if not contents:
        screen.print("nothing in state" if window is None else f"nothing in state of a window that starts at {window}")
        return
    made = table("state", "window", "value")
    for each in contents:
        more = f", and {each.left_out:,} more; --json prints all" if each.left_out else ""
        made.add_row(escape(each.state), _window(each), escape(json.dumps(each.value, ensure_ascii=False)) + more)
    screen.print(made)


def _window(content: Content) -> str:
    if content.window_start_ms is None or content.window_end_ms is None:
        return NOTHING
    return f"{utc(content.window_start_ms)} to {utc(content.window_end_ms)}"
