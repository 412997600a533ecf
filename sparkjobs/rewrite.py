"""``spark-submit rewrite.py``: writes a savepoint's state anew."""

from statecore.runtime.programs.rewrite import main

if __name__ == "__main__":
    main()
