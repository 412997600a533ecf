"""The contract of the catalog on PostgreSQL: races."""

from tests.contracts.catalog.races import *
