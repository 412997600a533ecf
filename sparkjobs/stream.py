"""``spark-submit stream.py``: runs one generation of a job's driver."""

from statecore.runtime.programs.stream import main

if __name__ == "__main__":
    main()
