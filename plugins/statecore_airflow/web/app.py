"""The FastAPI app that Airflow mounts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from airflow.api_fastapi.app import get_auth_manager
from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import JSONResponse, RedirectResponse

from statecore.errors import (
    CatalogError,
    ConfigurationError,
    InvalidParallelismError,
    StatecoreError,
    UnknownJobError,
    UnknownRecordError,
)
from statecore.redaction import redacted
from statecore_airflow.web import aborts, changes, charts, dataflow, definition, files, jobs, logs, plans, state
from statecore_airflow.web.access import may_read

_STATUS: dict[type[StatecoreError], int] = {
    UnknownJobError: status.HTTP_404_NOT_FOUND,
    UnknownRecordError: status.HTTP_404_NOT_FOUND,
    InvalidParallelismError: status.HTTP_422_UNPROCESSABLE_CONTENT,
    # Not 500: Airflow works, its catalog does not.
    CatalogError: status.HTTP_503_SERVICE_UNAVAILABLE,
    ConfigurationError: status.HTTP_503_SERVICE_UNAVAILABLE,
}
_HEADERS = {
    # No foreign content, no inline scripts, framed only by Airflow. Plotly needs inline styles.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def create_app() -> FastAPI:
    """Return the app: pages, static files and JSON routes."""
    # No routes for documentation: they would bypass the permission check.
    app = FastAPI(title="statecore", dependencies=[Depends(may_read)], docs_url=None, redoc_url=None, openapi_url=None)
    for part in (files, jobs, dataflow, charts, definition, state, plans, changes, logs, aborts):
        app.include_router(part.router)
    app.add_exception_handler(StatecoreError, _refused)
    app.add_exception_handler(HTTPException, _not_logged_in)
    app.middleware("http")(_guarded)
    return app


async def _guarded(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Add security headers to every response."""
    response = await call_next(request)
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with the error's message, without secrets."""
    code = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), status.HTTP_409_CONFLICT)
    return JSONResponse({"detail": redacted(str(error))}, status_code=code)


async def _not_logged_in(request: Request, error: Exception) -> Response:
    """Redirect a browser without login to Airflow's login page; answer a script with the plain error."""
    assert isinstance(error, HTTPException)
    is_browser = "text/html" in request.headers.get("accept", "")
    if error.status_code == status.HTTP_401_UNAUTHORIZED and is_browser:
        return RedirectResponse(get_auth_manager().get_url_login(next_url=str(request.url)))
    return await http_exception_handler(request, error)
