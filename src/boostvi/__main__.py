"""`python -m boostvi`."""

import sys

from boostvi.cli import main

sys.exit(main())
