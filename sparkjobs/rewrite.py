"""``spark-submit rewrite.py``: rewrites a savepoint's state."""

from statecore.runtime.programs.rewrite import main

if __name__ == "__main__":
    main()
