"""What waits in the sources of a running job."""
