"""The contract of the catalog on PostgreSQL: leases."""

from tests.contracts.catalog.leases import *
