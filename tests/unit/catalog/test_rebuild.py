"""The contract of the catalog on SQLite: rebuilding it from stores."""

from tests.contracts.catalog.rebuild import *
