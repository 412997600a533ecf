"""The contract of the catalog on SQLite: leases."""

from tests.contracts.catalog.leases import *
