"""The contract of the catalog on SQLite: how jobs stand."""

from tests.contracts.catalog.overviews import *
