"""Routes: HTML pages, scripts, styles and images; all jobs share one page file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Response, status
from fastapi.responses import FileResponse, HTMLResponse
from markdown_it import MarkdownIt

from statecore.extras import require
from statecore.operations.status.runbook import runbook

router = APIRouter()

_HERE = Path(__file__).resolve().parent
_STATIC = {file.name: file for file in (_HERE / "static").iterdir()}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@router.get("/")
def jobs_page() -> FileResponse:
    """Return the page of all jobs."""
    return _page("jobs")


@router.get("/job")
def job_page() -> FileResponse:
    """Return the page of a job; its script reads the job's name from the query parameter ``name``."""
    return _page("job")


@router.get("/log")
def log_page() -> FileResponse:
    """Return the page of a driver log."""
    return _page("log")


@router.get("/runbook")
def runbook_page() -> HTMLResponse:
    """Return the page of the runbook: what each alert means, and what to do."""
    return HTMLResponse(_runbook())


@router.get("/static/plotly.min.js")
def plotly() -> Response:
    """Return the chart library from its installed package."""
    # Cache the 5 MB for a day; a new release arrives a day late at most.
    return Response(_plotly(), media_type="text/javascript", headers={"Cache-Control": "private, max-age=86400"})


@router.get("/static/{name}")
def static(name: str) -> FileResponse:
    """Return a script, style or image; only files present at start are served."""
    file = _STATIC.get(name)
    if file is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "Not found")
    return FileResponse(file, media_type=_TYPES[file.suffix], headers={"Cache-Control": "no-cache"})


def _page(name: str) -> FileResponse:
    return FileResponse(_file(name), media_type="text/html")


def _file(name: str) -> Path:
    return _HERE / "pages" / f"{name}.html"


@cache
def _runbook() -> str:
    # Tables, and no HTML of the text's own.
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    entries = (f'<h2 id="{name}">{name}</h2>\n{markdown.render(text)}' for name, text in runbook().items())
    return _file("runbook").read_text(encoding="utf-8").replace("<!-- entries -->", "\n".join(entries))


@cache
def _plotly() -> bytes:
    require("plotly", extra="plots")
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()
