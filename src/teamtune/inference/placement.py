"""Which engine serves which policy: by default one of its own, made as for all the others.

Frozen policies whose engines come from one factory and one model folder share one, for its weights
never change. A trained policy's engine holds that policy's weights alone.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from teamtune.errors import ConfigError, nearest
from teamtune.inference.engine import RolloutEngine, Sampling

EngineFactory = Callable[[str, Sampling], RolloutEngine]
"""Makes an engine from a model folder and the default sampling."""


@dataclass(frozen=True)
class Placement:
    """Who makes the engine of a policy."""

    default: EngineFactory
    overrides: Mapping[str, EngineFactory] = field(default_factory=dict)
    """By policy, where it is another one."""

    def check(self, models: Mapping[str, Any], sampling: Sampling) -> None:
        """Finds out what engines cannot do before any is made; writes nothing.

        Args:
            models: The policies' model configurations, as transformers reads them.
            sampling: The default sampling.

        Raises:
            ConfigError: An override is of no policy, a package is missing, or an engine cannot run
                its policy's model.
        """
        for name in self.overrides:
            if name not in models:
                raise ConfigError(
                    f"rollout.engines.{name}: unknown policy{nearest(name, models)}; "
                    f"policies: {', '.join(models)}"
                )
        together: dict[type[RolloutEngine], list[Any]] = {}
        for name, model in models.items():
            cls, settings = _described(self._factory(name))
            if cls is not None:
                cls.check_installed()
                with self._located(name):
                    cls.check_model(model, sampling, **settings)
                together.setdefault(cls, []).append(model)
        for cls, served in together.items():
            cls.check_together(served)

    def memory(
        self,
        models: Mapping[str, Any],
        sampling: Sampling,
        samples: int,
        gpu: int | None,
        shared: Mapping[str, str],
    ) -> float:
        """Bytes of all engines of a rank, see `RolloutEngine.memory`.

        Args:
            models: The policies' model configurations.
            sampling: The default sampling.
            samples: Most answers in the making at once.
            gpu: Bytes of a GPU; None without one.
            shared: The folders of frozen policies, which share engines.
        """
        total, seen = 0.0, set()
        for name, model in models.items():
            factory = self._factory(name)
            key = (id(factory), shared.get(name, (name,)))
            cls, settings = _described(factory)
            if cls is not None and key not in seen:
                total += cls.memory(model, sampling, samples, gpu, **settings)
            seen.add(key)
        return total

    def engines(
        self, folders: Mapping[str, str], sampling: Sampling, frozen: Collection[str] = ()
    ) -> dict[str, RolloutEngine]:
        """Makes each policy's engine.

        Args:
            folders: The policies' model folders.
            sampling: The engines' default sampling.
            frozen: Policies that are never trained: what their engines load is version 0.
        """
        placed: dict[str, RolloutEngine] = {}
        shared: dict[tuple[int, str], RolloutEngine] = {}
        try:
            for name, folder in folders.items():
                factory = self._factory(name)
                known = shared.get((id(factory), folder)) if name in frozen else None
                with self._located(name):
                    placed[name] = known or factory(folder, sampling)
                if name in frozen:
                    placed[name].version = 0
                    shared[id(factory), folder] = placed[name]
        except BaseException:
            close(placed)
            raise
        return placed

    def _factory(self, policy: str) -> EngineFactory:
        return self.overrides.get(policy, self.default)

    @contextmanager
    def _located(self, policy: str) -> Iterator[None]:
        """Puts the key of the policy's engine before what is said about one of its settings."""
        try:
            yield
        except ConfigError as error:
            message = str(error)
            if message.startswith("rollout."):
                raise
            key = f"rollout.engines.{policy}" if policy in self.overrides else "rollout.engine"
            _, settings = _described(self._factory(policy))
            own = message.partition(":")[0] in settings
            raise ConfigError(f"{key}{'.init_args.' if own else ': '}{message}") from error


def close(engines: Mapping[str, RolloutEngine]) -> None:
    """Closes each engine once, however many policies it serves."""
    for engine in dict.fromkeys(engines.values()):
        engine.close()


def _described(factory: EngineFactory) -> tuple[type[RolloutEngine] | None, dict[str, Any]]:
    """A factory's class and settings, if it is a class or, as from a configuration, a partial."""
    parts: list[Any] = [factory]
    settings: dict[str, Any] = {}
    if isinstance(factory, partial):
        parts, settings = [factory.func, *factory.args], factory.keywords
    for part in parts:
        if isinstance(part, type) and issubclass(part, RolloutEngine):
            return part, settings
    return None, {}
