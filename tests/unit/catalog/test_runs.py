"""The contract of the catalog on SQLite: rescale runs."""

from tests.contracts.catalog.runs import *
