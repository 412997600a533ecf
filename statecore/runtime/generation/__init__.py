"""The parts of a generation of either kind of job: claim, heartbeats, watchdog, record of its failure."""
