"""One file per family of rows."""
