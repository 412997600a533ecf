"""The contract of the catalog on PostgreSQL: rescale runs."""

from tests.contracts.catalog.runs import *
