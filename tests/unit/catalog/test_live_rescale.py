"""The contract of the catalog on SQLite: live rescales."""

from tests.contracts.catalog.live_rescale import *
