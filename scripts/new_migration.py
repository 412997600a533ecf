"""Writes the next Alembic revision of the catalog, from the newest one to ``statecore/catalog/tables.py``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from statecore.catalog import Catalog, schema


def main() -> None:
    """Parse the argument and write the revision."""
    parser = argparse.ArgumentParser(prog="make migration", description=__doc__)
    parser.add_argument("name", help="the change in a few words: NAME='policy settings of a job'")
    name = parser.parse_args().name.strip()
    if not name:
        parser.error("found no name; expected the change in a few words; run make migration NAME='…'")
    versions = schema.MIGRATIONS / "versions"
    before = set(versions.glob("*.py"))
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'catalog.db'}"
        with Catalog(url) as catalog:
            catalog.create_schema()
        engine = create_engine(url)
        with engine.connect() as connection:
            config = schema.alembic_config(connection)
            config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
            command.revision(
                config, name[0].upper() + name[1:], autogenerate=True, rev_id=f"{int(schema.head()) + 1:04d}"
            )
        engine.dispose()
    for made in set(versions.glob("*.py")) - before:
        for arguments in (["check", "--fix", "--quiet"], ["format", "--quiet"]):
            subprocess.run([sys.executable, "-m", "ruff", *arguments, str(made)], check=True)


if __name__ == "__main__":
    main()
