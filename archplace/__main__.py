"""``python -m archplace``."""

import sys

from archplace.cli import main

if __name__ == "__main__":
    sys.exit(main())
