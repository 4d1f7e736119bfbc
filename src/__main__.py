"""`python -m src` is the `teamtune` command; from a bare checkout and in relaunched ranks too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from teamtune.command.cli import main

if __name__ == "__main__":
    main()
