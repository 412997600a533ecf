"""Starts and stops the real parts that the demo and the tests run on."""
