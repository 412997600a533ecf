"""Pages name the connector that the tests fetch."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from tests.support.paths import REPO


def test_every_page_names_the_connector_that_is_tested() -> None:
    project = ElementTree.parse(REPO / "scripts" / "kafka" / "pom.xml").getroot()
    maven = {"m": "http://maven.apache.org/POM/4.0.0"}
    (tested,) = [
        each.findtext("m:version", namespaces=maven)
        for each in project.iterfind(".//m:dependency", maven)
        if (each.findtext("m:artifactId", namespaces=maven) or "").startswith("spark-sql-kafka")
    ]
    named = {
        version
        # Decisions quote others.
        for page in [*REPO.glob("docs/*.md"), REPO / "README.md"]
        for version in re.findall(r"spark-sql-kafka-0-10_2\.13:(?:jar:)?([\d.]*\d)", page.read_text())
    }
    assert named == {tested}
