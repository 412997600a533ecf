"""What programs that run for a step, in a process of their own, print for it."""

from __future__ import annotations

PROGRESS = "progress: "
"""How a line begins that says how far the program is."""
