"""The contract of the catalog on PostgreSQL: generations."""

from tests.contracts.catalog.generations import *
