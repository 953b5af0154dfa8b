"""`python -m strata.cli`."""

import sys

from strata.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
