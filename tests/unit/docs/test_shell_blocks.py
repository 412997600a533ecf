"""Every shell block of the documentation runs, or says why not.

The blocks of a page run one after the other, as a reader would type them, beside a job ``orders`` that a supervisor
runs: ``JOB`` is that job, and ``/data`` a folder. ``<!-- not run: reason -->`` before a block says why it does not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from string import Template

import pytest

from statecore.catalog import Catalog
from statecore.cli import steps
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.paths import REPO
from tests.support.shell import committed, register, run
from tests.support.supervised import CLUSTER, Supervised
from tests.unit.cli.test_simulate import TRACE
from tests.unit.docs.test_code_blocks import BLOCKS, Block
from tests.unit.docs.test_readme import block

SHELL = [each for each in BLOCKS if each.language == "sh"]
# The README's session is played by tests/spark/test_wheel.py, with a real supervisor.
PLAYED = [each for each in SHELL if not each.note.startswith("not run") and each.page != REPO / "README.md"]
PAGES = sorted({each.page for each in PLAYED})


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the words of each command, with the variables that the block sets."""
    variables: dict[str, str] = {}
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(Template(line).safe_substitute(variables), comments=True)
        if len(words) == 1 and "=" in words[0]:
            name, _, variables[name] = words[0].partition("=")
        elif words:
            yield words


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    """A folder with a job file, and the job that it describes, which runs on a cluster of one worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(steps, "RETRY_DELAY", timedelta(seconds=0.01))
    monkeypatch.setattr(steps, "POLL_S", 0.05)
    url = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("STATECORE_CATALOG", url)
    for name in ("orders.py", "new.py"):
        Path(name).write_text(block("job-file"))
    Path("TRACE.csv").write_text(TRACE)
    Path("WORLD.json").write_text("{}")
    store = CheckpointStore.at(str(tmp_path / "store"))
    with Catalog(url) as catalog:
        catalog.create_schema()
        catalog.clusters.register(CLUSTER, "standalone", {}, 1)
        settings = {"input": f"{tmp_path}/in", "output": f"{tmp_path}/out"}
        register(catalog, store, cluster=CLUSTER, artifact=str(tmp_path / "orders.py"), settings=settings)
        committed(store)
        with Supervised(url, "orders", store) as supervised:
            yield supervised


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_run_in_order(page: Path, world: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in PLAYED:
        if each.page == page:
            for program, *words in commands(each):
                words = [re.sub(r"^/data\b", "data", "orders" if word == "JOB" else word) for word in words]
                if program == "export":
                    name, _, value = words[0].partition("=")
                    if name != "STATECORE_CATALOG":
                        monkeypatch.setenv(name, value)
                    continue
                assert program == "statecore", f"{each}: say <!-- not run: reason -->, or show a command of ours"
                if words[0] == "supervisor":
                    # One is played.
                    continue
                done = run(*words)
                assert done.returncode == 0, (str(each), words, done.stderr)


@pytest.mark.parametrize("block", [each for each in SHELL if each.note], ids=str)
def test_a_block_that_does_not_run_says_why(block: Block) -> None:
    assert block.note == "run-job" or re.fullmatch(r"not run: .{10,}", block.note), "expected <!-- not run: reason -->"
