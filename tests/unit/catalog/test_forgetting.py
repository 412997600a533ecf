"""The contract of the catalog on SQLite: what is forgotten."""

from tests.contracts.catalog.forgetting import *
