"""Revisions, numbered in the order in which they are applied."""
