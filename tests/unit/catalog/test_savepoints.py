"""The contract of the catalog on SQLite: savepoints."""

from tests.contracts.catalog.savepoints import *
