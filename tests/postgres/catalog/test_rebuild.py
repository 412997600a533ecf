"""The contract of the catalog on PostgreSQL: rebuilding it from stores."""

from tests.contracts.catalog.rebuild import *
