"""Revisions, numbered in the order of their application."""
