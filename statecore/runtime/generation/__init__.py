"""What a generation of either kind of job has: a claim, heartbeats, a watchdog, the record of its failure."""
