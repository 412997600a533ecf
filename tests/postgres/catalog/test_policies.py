"""The contract of the catalog on PostgreSQL: policies."""

from tests.contracts.catalog.policies import *
