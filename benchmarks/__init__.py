"""Measurements; figures in the documentation come from here."""
