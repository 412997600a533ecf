"""The contract of the catalog on PostgreSQL: live rescales."""

from tests.contracts.catalog.live_rescale import *
