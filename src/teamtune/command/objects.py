"""Builds the objects of a configuration, so that constructors need not know where they stand in it.

A constructor that refuses an argument names the argument; here the key of its object goes in front.
The key travels in a specification's `dict_kwargs`, which jsonargparse hands to the instantiator.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from pkgutil import resolve_name
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from teamtune.errors import ConfigError

KEY = "__key__"
REFUSALS = (ValueError, TypeError, ArithmeticError, ImportError, OSError, MisconfigurationException)
"""What constructors, ours and others', raise when they cannot work with their arguments."""


class Placed(ConfigError):
    """A message that begins with the whole key."""


def instantiate(parser: ArgumentParser, config: Namespace, subcommand: str) -> Namespace:
    """`config` with an object in place of each specification of `subcommand`.

    Raises:
        ConfigError: A constructor refused its arguments; the message begins with the whole key.
    """
    builder = Builder(config[subcommand])
    named = config.clone()
    for key, node in list(nodes(named[subcommand], free=False)):
        if _names_a_class(node.get("class_path")):
            node["dict_kwargs"] = {**(node.get("dict_kwargs") or {}), KEY: f"{key}.init_args"}
    try:
        return parser.instantiate(named, instantiators=[(builder, object, True)])
    except (ValueError, ArgumentError) as error:
        raise builder.refusal or ConfigError(str(error)) from error
    finally:
        builder.finished = True


class Builder:
    """Makes one object at a time, and keeps the first refusal, which a union would bury."""

    def __init__(self, config: Namespace):
        self.config = config
        self.refusal: Placed | None = None
        self.finished = False

    def __call__(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        key = kwargs.pop(KEY, None)
        try:
            return cls(*args, **kwargs)
        except REFUSALS as error:
            if self.finished and not isinstance(error, ConfigError):
                raise  # a factory that is called in a run: no mistake of the configuration
            if isinstance(error, Placed):
                raise
            key, own = key or self._find(kwargs), inspect.signature(cls).parameters
            placed = Placed(place(error, key, {*own, *kwargs}, self.config))
            self.refusal = self.refusal or placed
            raise placed from error

    def _find(self, kwargs: dict[str, Any]) -> str:
        """The key of a section or data class, which carries none: the first with these values."""
        plain = {name: value for name, value in kwargs.items() if _is_plain(value)}
        for key, node in nodes(self.config):
            same = {name: value for name, value in node.items() if name in plain}
            if node.keys() == kwargs.keys() and same == plain:
                return key
        return ""


def place(error: Exception, key: str, names: Any, sections: Any) -> str:
    """What `error` says, with `key` in front unless it begins with a section's name.

    Args:
        error: Raised by the constructor of the object at `key`.
        key: Of its arguments, dotted.
        names: The constructor's arguments.
        sections: The configuration's own first keys.
    """
    message = " ".join(str(error).split()) or type(error).__name__
    first = re.split(r"[.:\s]", message, maxsplit=1)[0]
    if first in names:
        return f"{key}.{message}"
    key = key.removesuffix(".init_args")
    return message if first in sections or not key else f"{key}: {message}"


def nodes(value: Any, key: str = "", free: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
    """All mappings below `value` and their keys; the mappings are the configuration's own.

    Args:
        value: What was parsed.
        key: Its own.
        free: Whether mappings count whose names are the user's, such as a policy map: the parser
            leaves them as they are, and builds nothing of what they say themselves.
    """
    parsed = isinstance(value, Namespace)
    if parsed:
        value = vars(value)
    if isinstance(value, dict):
        if parsed or free:
            yield key, value
        items: Iterable[tuple[Any, Any]] = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        if name == "dict_kwargs":
            continue  # nothing in there is built
        yield from nodes(item, f"{key}.{name}" if key else str(name), free)


def _names_a_class(path: Any) -> bool:
    """Whether it is the path of a class; of a function jsonargparse asks no instantiator."""
    try:
        return isinstance(path, str) and inspect.isclass(resolve_name(path))
    except (ImportError, AttributeError, ValueError):
        return False


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
