"""Starts the server with stand-ins for the parent packages, which would import torch.

Run as a script by `worker.py` with one argument, the settings as JSON.
"""

import json
import os
import sys
from pathlib import Path
from types import ModuleType


def _stand_in(name: str, folder: Path) -> None:
    module = ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


if __name__ == "__main__":
    os.environ.clear()
    server = Path(__file__).parent
    _stand_in("teamtune", server.parents[1])
    _stand_in("teamtune.sandbox", server.parent)
    from teamtune.sandbox.server.serve import serve

    serve(json.loads(sys.argv[1]))
