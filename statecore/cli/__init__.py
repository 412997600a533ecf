"""``statecore``: jobs, savepoints, rescales and the supervisor from a shell.

Exit codes: 0 done, 1 refused or failed (the reason is on stderr), 2 usage. Results go to stdout, everything else to
stderr, so that a script can use ``$(statecore savepoint create …)`` as a path.
"""

from statecore.cli.root import app, main

__all__ = ["app", "main"]
