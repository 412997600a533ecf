"""Parameters of DAG runs: forms and validation."""
