"""``python -m statecore``."""

from statecore.cli import main

if __name__ == "__main__":
    main()
