"""Triggers: wait in the triggerer for what the catalog shows."""
