"""`python -m blackwell_matmul` is the command line, also where its script is not on the PATH."""

import sys

from blackwell_matmul.cli import main

sys.exit(main())
