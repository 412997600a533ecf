"""The backlog of a running job: input in its sources that no committed epoch has read."""
