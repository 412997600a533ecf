"""JVM options for processes that live for minutes: startup time counts, not peak speed.

``scripts.archive_classes`` writes an archive of Spark's classes, parsed and verified, beside the packages; a JVM that
maps it starts faster. Another version of Java ignores it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# With one compiler Java reserves 48 MB for compiled methods. Spark fills that within minutes; Java then discards
# methods and compiles them again.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
# Naming a missing archive costs time: Java then skips its default archive as well.
QUICK_START = f"{QUICK} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else QUICK
