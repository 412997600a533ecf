"""Every code block of the documentation: Python runs, or compiles; shell commands and their options exist.

A comment before a Python block says how it is run: ``<!-- imports -->`` is shared by all blocks of its page, and
``<!-- not run: reason -->`` is only compiled.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from statecore.cli import app
from tests.support.paths import REPO

PAGES = [*sorted(REPO.glob("*.md")), *sorted(REPO.glob("docs/**/*.md"))]
FENCED = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
SHELL = typer.main.get_command(app)
PLACEHOLDERS = {"JOB": "orders", "STORE…": "store"}
LANGUAGES = {"", "ini", "python", "sh"}


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    heading: str
    note: str
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPO)}: {self.heading}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCED.finditer(text):
        before = text[: found.start("code")]
        heading = re.findall(r"^#+ (.*)", before, re.MULTILINE)[-1]
        yield Block(page, before.count("\n"), heading, found["note"] or "", found["language"], found["code"])


BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
IMPORTS = {block.page: block for block in PYTHON if block.note == "imports"}
EXAMPLES = [block for block in PYTHON if block.page in IMPORTS and block is not IMPORTS[block.page]]


def run(*code: Block) -> None:
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for block in code:
        # Line numbers in a traceback are those of the page.
        exec(compile("\n" * block.line + block.code, block.page, "exec", dont_inherit=True), namespace)


def test_there_are_blocks_to_run() -> None:
    assert len(PYTHON) > 20
    assert {block.language for block in BLOCKS} <= LANGUAGES


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_block_runs_or_says_why_not(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if block.note.startswith("not run"):
        assert re.fullmatch(r"not run: .{10,}", block.note), "expected <!-- not run: reason -->"
        compile(block.code, block.page, "exec")
    elif block in EXAMPLES:
        run(IMPORTS[block.page], block)
    else:
        run(block)


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_every_example_says_by_an_assert_what_is_true(block: Block) -> None:
    assert re.search(r"^ *assert ", block.code, re.MULTILINE)


@pytest.mark.parametrize("block", IMPORTS.values(), ids=str)
def test_no_import_is_without_use(block: Block) -> None:
    names = re.findall(r"^    (\w+),$|\bimport ([\w, ]+)$", block.code, re.MULTILINE)
    examples = [each.code for each in EXAMPLES if each.page == block.page]
    for name in (name.strip() for found in names for name in ",".join(found).split(",") if name.strip()):
        assert any(re.search(rf"\b{name}\b", example) for example in examples), name


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that the words begin with, and the other words."""
    command: Any = SHELL
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return command, rest


def shown() -> Iterator[tuple[str, list[str]]]:
    """Yield (page, words) of each command of ours in a shell block."""
    for block in BLOCKS:
        if block.language == "sh":
            for line in block.code.replace("\\\n", " ").splitlines():
                found = re.search(r"(?:^|\b(?:supervisor|catalog-init) )statecore (.*)$", line)
                if found:
                    words = shlex.split(found[1].rstrip("& "), comments=True)
                    yield str(block), [PLACEHOLDERS.get(word, word) for word in words]


@pytest.mark.parametrize(("where", "words"), list(shown()))
def test_the_command_line_takes_every_command_that_is_shown(
    where: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATECORE_CATALOG", "sqlite:///catalog.db")
    command, arguments = command_of(words)
    assert not hasattr(command, "commands"), f"{where}: {words}"
    command.make_context("statecore", arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_in_a_sentence_has_the_options_that_are_named(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    for code in re.findall(r"`([^`\n]+)`", text):
        words = code.removeprefix("statecore ").split()
        command, rest = command_of(words)
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        if command.name != "statecore" and rest != words:
            unknown = {word for word in rest if word.startswith("--")} - options - {"--help"}
            assert not unknown, code
        else:
            assert not code.startswith("statecore "), f"{code}: no such command"


def test_commands_are_shown_as_a_shell_takes_them() -> None:
    """An indented block is easily taken for text, and none of these tests looks into it."""
    for page in PAGES:
        assert not re.search(r"^ {4}(?:statecore|python -m|make) ", FENCED.sub("", page.read_text()), re.MULTILINE), (
            page
        )
        assert "python -m statecore " not in page.read_text(), page
