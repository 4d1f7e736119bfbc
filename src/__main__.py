"""`python -m src` is the `teamtune` command; it works from a bare checkout and in relaunched ranks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from teamtune.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
