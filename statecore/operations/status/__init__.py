"""Status of jobs: figures, findings, advice and alerts."""
