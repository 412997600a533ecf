"""Loads Python files that users write: job files and query files."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

JOB_MODULE = "statecore_job_"
"""Prefix of the module names of job files; the file's name follows."""
QUERY_MODULE = "statecore_query_"
"""Prefix of the module names of query files; the file's name follows."""


def load_user_file(path: Path, prefix: str) -> ModuleType:
    """Run a Python file and return it as a module.

    Args:
        path: The file, which exists.
        prefix: Prefix of the module's name; the file's name follows.

    Raises:
        Exception: Any error that the file raises.

    """
    name = f"{prefix}{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
