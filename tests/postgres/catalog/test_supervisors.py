"""The contract of the catalog on PostgreSQL: the supervisor."""

from tests.contracts.catalog.supervisors import *
