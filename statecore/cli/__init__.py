"""``statecore``: jobs, savepoints, rescales and the supervisor from a shell.

Exit codes: 0 done, 1 refused or failed (the reason is on stderr), 2 usage. What was asked for is on stdout, everything
else on stderr, so that a script may take ``$(statecore savepoint create …)`` for a path.
"""

from statecore.cli.root import app, main

__all__ = ["app", "main"]
