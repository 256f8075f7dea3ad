"""`python3 -m tarn` is the command `tarn`."""

import sys

from tarn.cli import main

sys.exit(main())
