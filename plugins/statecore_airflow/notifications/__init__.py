"""Notifiers for failures, rollbacks, drained backlogs and decisions of policies."""
