"""``examples list`` and ``examples copy``."""

from __future__ import annotations

import ast
import json
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from statecore.cli.options import AsJson
from statecore.cli.output import console, print_json, table
from statecore.errors import ConfigurationError

ExampleName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the example, as `examples list` shows it.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write it; by default here.")]


def list_examples(as_json: AsJson = False) -> None:
    """Print the examples that come with the package, and what each shows."""
    summaries = {path.stem: _summary(path) for path in _examples()}
    if as_json:
        print_json(summaries)
        return
    made = table("example", "shows")
    for name, summary in summaries.items():
        made.add_row(name, summary)
    console().print(made)


def copy_example(name: ExampleName, folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Write an example's file, to be read, run and changed."""
    known = {path.stem: path for path in _examples()}
    if name not in known:
        raise ConfigurationError(
            f"found no example {name!r}; expected one of {', '.join(known)}; correct the name, or list them with "
            "`statecore examples list`"
        )
    source = known[name]
    target = folder / source.name
    if target.exists():
        raise ConfigurationError(
            f"found a file at {target}; expected none, because it would be lost; name another folder, or move it away"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"could not write {target}: {error}; expected a folder that can be written to; name another"
        ) from error
    if as_json:
        print_json({"file": str(target)})
        return
    print(target)


def _examples() -> list[Path]:
    packaged = Path(str(files("statecore"))) / "examples"
    # In a checkout they are beside the package.
    folder = packaged if packaged.is_dir() else packaged.parents[1] / "examples"
    return sorted(path for path in folder.iterdir() if path.suffix in (".py", ".ipynb") and path.stem != "__init__")


def _summary(path: Path) -> str:
    """Return the first sentence of an example."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "".join(json.loads(text)["cells"][0]["source"])
        return next(line.strip("# ") for line in text.splitlines() if line.strip())
    return (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ")
