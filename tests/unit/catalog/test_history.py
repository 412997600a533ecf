"""The contract of the catalog on SQLite: the history of a job."""

from tests.contracts.catalog.history import *
