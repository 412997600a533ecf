"""The contract of the catalog on SQLite: the supervisor."""

from tests.contracts.catalog.supervisors import *
