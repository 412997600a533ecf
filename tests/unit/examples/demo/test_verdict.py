"""What the demo prints in the end."""

from __future__ import annotations

from rich.console import Console

from examples.demo.verdict import Difference, Verdict


def test_the_verdict_is_exact_only_if_every_comparison_is_and_prints_what_differs() -> None:
    exact, different = Difference("totals", 2, 2, 0, 0), Difference("alerts", 2, 1, 1, 0, ("expected [1]x",))
    assert Verdict((exact,)).exact
    verdict = Verdict((exact, different))
    assert not verdict.exact
    console = Console(width=100, record=True)
    verdict.print(console)
    text = console.export_text()
    assert "DIFFERENT" in text
    assert "alerts: expected [1]x" in text
