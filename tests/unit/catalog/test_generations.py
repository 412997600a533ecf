"""The contract of the catalog on SQLite: generations."""

from tests.contracts.catalog.generations import *
