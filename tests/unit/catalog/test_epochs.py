"""The contract of the catalog on SQLite: epochs."""

from tests.contracts.catalog.epochs import *
