"""``spark-submit copy_savepoint.py SOURCE TARGET``: copies a savepoint or checkpoint."""

from statecore.runtime.programs.copy_savepoint import main

if __name__ == "__main__":
    main()
