"""The contract of the catalog on PostgreSQL: the history of a job."""

from tests.contracts.catalog.history import *
