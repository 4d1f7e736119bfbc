"""The names that a run logs are known before it begins."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from factories import logged, team_config
from teamtune.command import team_cli
from teamtune.command.cli import run


@pytest.mark.slow
def test_every_metric_of_a_run_is_known_before_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    known: set[str] = set()

    def keep(callbacks: Any, names: Collection[str]) -> None:
        known.update(names)

    monkeypatch.setattr(team_cli, "check_callbacks", keep)
    options: dict[str, Any] = {
        "model": {"algorithm": {"init_args": {"kl_coef": 0.1, "entropy_coef": 0.01}}},
        "rollout": {"evaluation_samples": 2},
    }
    run(["fit", *team_config(tmp_path, **options), "--trainer.max_epochs=2"])
    found = {name for _, name in logged(tmp_path)}
    assert found <= known
    timed = ("time/", "per_second", "seconds_per")
    rest = {name for name in known - found if not any(part in name for part in timed)}
    assert rest == {"a/warm_start_loss", "b/warm_start_loss"}
