"""JVM options for processes that live for minutes: what counts is how soon they start, not how fast they become.

``scripts.archive_classes`` writes an archive of Spark's classes, parsed and verified, beside the packages it was made
from; a JVM that maps it starts sooner. Another Java leaves it alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
# Without its file the option would cost time: Java would leave its own archive alone, too.
QUICK_START = f"{QUICK} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else QUICK
