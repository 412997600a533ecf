"""The contract of the catalog on PostgreSQL: how jobs stand."""

from tests.contracts.catalog.overviews import *
