"""Notifiers for failures, rollbacks and drained backlogs."""
