"""`python -m boostvi.cli`."""

import sys

from boostvi.cli import main

sys.exit(main())
