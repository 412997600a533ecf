"""One generation of a job's driver: resume, control, live rescale, savepoints, upkeep."""
