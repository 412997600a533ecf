"""The parameters of DAG runs: their forms and their validation."""
