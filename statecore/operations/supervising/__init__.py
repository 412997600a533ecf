"""The supervisor's work: drivers, clusters, checks, alerts and metrics."""
