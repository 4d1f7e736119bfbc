"""A task is an identifier and plain data; only its environment knows what the data mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Task:
    """One problem to solve.

    `id` names the instance: two tasks with one id are the same instance. `data` is read-only.
    """

    id: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", MappingProxyType(dict(self.data)))

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[type["Task"], tuple[str, dict[str, Any]]]:
        return Task, (self.id, dict(self.data))
