"""The contract of the catalog on PostgreSQL: what is forgotten."""

from tests.contracts.catalog.forgetting import *
