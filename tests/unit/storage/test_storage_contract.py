"""The contract of stores, in a folder and on moto."""

from tests.contracts.storage import *
