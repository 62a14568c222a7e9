"""`python -m coterie.cli`: how a supervisor starts the processes it watches."""

import sys

from coterie.cli.main import main

sys.exit(main())
