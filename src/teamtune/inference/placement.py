"""Which engine serves which policy."""

from collections.abc import Callable, Mapping

from teamtune.inference.engine import RolloutEngine, Sampling

EngineFactory = Callable[[str, Sampling], RolloutEngine]


def place(
    folders: Mapping[str, str],
    engine: EngineFactory,
    overrides: Mapping[str, EngineFactory],
    sampling: Sampling,
) -> dict[str, RolloutEngine]:
    """An engine per policy, by the folders of their models."""
    return {name: overrides.get(name, engine)(folder, sampling) for name, folder in folders.items()}
