"""The contract of the catalog on SQLite: policies."""

from tests.contracts.catalog.policies import *
