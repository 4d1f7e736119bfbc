"""The keys that constructors spell out: which a configuration may hold, and what each allows.

jsonargparse checks values too, but its messages list every type that did not match, and some
unknown keys pass unseen. This walks along the parser's own arguments, so that both know the same.
"""

import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from textwrap import shorten
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from jsonargparse import ArgumentError, ArgumentParser
from jsonargparse.typing import get_registered_type
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    StochasticWeightAveraging,
    WeightAveraging,
)
from torch.optim import LBFGS, SparseAdam
from torch.optim.lr_scheduler import ReduceLROnPlateau

from teamtune.errors import ConfigError, nearest

SPEC = ("class_path", "init_args", "dict_kwargs")
NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
}
UNUSABLE: dict[type, str] = {
    LBFGS: "asks for the loss again, which a rollout step has once",
    SparseAdam: "takes sparse gradients only, which models here do not have",
    ReduceLROnPlateau: "follows a metric, which schedules here are not given",
    WeightAveraging: "is not supported, for engines sample with the weights that are trained",
    StochasticWeightAveraging: "is not supported, for it takes one optimizer, and engines sample "
    "with the weights that are trained",
    GradientAccumulationScheduler: "has no effect here, model.policies.<name>.init_args."
    "token_budget makes micro-batches",
    LearningRateFinder: "is not supported, for it takes one optimizer that Lightning steps",
    BatchSizeFinder: "is not supported, data.tasks_per_step says how many tasks a step has",
}
"""Classes of the right kind that a step cannot use, and why."""
LIMITS = {operator.gt: "above", operator.ge: "of at least", operator.lt: "below"}
LIMITS |= {operator.le: "of at most"}
LARGEST = 2**63
"""More than tensors and timers can hold."""


def check(parser: ArgumentParser, values: Mapping[str, Any], strict: bool = False) -> None:
    """Raises ConfigError for the first key or class that is unknown.

    Args:
        parser: Whose arguments are the known keys.
        values: The configuration as plain mappings and lists.
        strict: Whether to check values and missing keys too, as a parser does.
    """
    _Walk(strict).arguments(parser, values, "", "")


class _Walk:
    def __init__(self, strict: bool):
        self.strict = strict

    def arguments(
        self, parser: ArgumentParser, values: Mapping[str, Any], key: str, prefix: str
    ) -> None:
        """Keys of `values` are arguments of `parser` whose names begin with `prefix`."""
        known = _names(parser, prefix)
        actions: dict[str, Any] = {a.dest: a for a in parser._actions if _is_argument(a)}
        for given, value in values.items():
            name = str(given).removesuffix("+")
            place = _join(key, name)
            if name not in known:
                raise ConfigError(f"{place}: unknown key{_suggest(name, known)}")
            action: Any = actions.get(prefix + name)
            if hasattr(action, "_typehint"):
                self.value(action._typehint, value, place, action.default)
            elif isinstance(value, Mapping):
                self.arguments(parser, value, place, f"{prefix}{name}.")
            elif not (isinstance(value, str) and find_file(value)):
                raise _refusal(place, value, "a mapping of keys")
        if self.strict:
            self._require(parser, {str(v).removesuffix("+") for v in values}, key, prefix)

    def _require(self, parser: ArgumentParser, given: set[str], key: str, prefix: str) -> None:
        needed = {a.dest for a in parser._actions if a.required} | set(parser._extra_required_keys)
        for dest in sorted(needed):
            name, _, rest = dest.removeprefix(prefix).partition(".")
            if dest.startswith(prefix) and name not in given:
                raise ConfigError(f"{_join(key, name + '.' * bool(rest) + rest)}: missing")

    def value(self, hint: Any, value: Any, key: str, default: Any = None) -> None:
        """`value` is meant for an argument of type `hint`."""
        options = list(_options(hint))
        classes = [o for o in options if _is_class(o) or _returned(o)]
        mapping = next((o for o in options if get_origin(o) in (dict, Mapping)), None)
        items = next((get_args(o)[0] for o in options if _is_list(o)), None)
        if isinstance(value, Mapping) and classes and ("class_path" in value or mapping is None):
            self._object(classes, value, key, default)
        elif isinstance(value, Mapping) and mapping:
            for name, item in value.items():
                self.value(get_args(mapping)[1], item, _join(key, str(name)))
        elif isinstance(value, list) and items and any(isinstance(i, Mapping) for i in value):
            for index, item in enumerate(value):
                self.value(items, item, _join(key, str(index)))
        elif classes and _is_path(value) and not any(o in (int, float, str) for o in options):
            _load(value, [_returned(c) or c for c in classes], key)
        elif _is_null(value, options) or (self.strict and not _accepts(hint, value)):
            raise _refusal(key, value, _describe(hint))
        elif type(value) in (int, float) and not abs(value) < LARGEST:
            raise _refusal(key, value, "a number below 2^63")

    def _object(self, classes: list[Any], value: Mapping[str, Any], key: str, default: Any) -> None:
        bases = [_returned(c) or c for c in classes]
        skip = max(len(get_args(c)[0]) if _returned(c) else 0 for c in classes)
        name = value.get("class_path")
        if name is None:
            name = getattr(default, "class_path", None)
        if name is None and _has_choices(bases):
            raise ConfigError(f"{key}.class_path: missing")
        cls = bases[0] if name is None else _load(name, bases, f"{key}.class_path")
        parser = _parser_of(cls, skip)
        if parser is None or inspect.isabstract(cls):
            return
        init_args = value.get("init_args") or {}
        direct = {
            k: v for k, v in value.items() if k not in ("class_path", "init_args", "dict_kwargs")
        }
        for part in SPEC[1:]:
            if not isinstance(value.get(part), Mapping | None):
                raise _refusal(f"{key}.{part}", value[part], "a mapping of keys")
        known = _names(parser, "")
        for given in direct:
            if name is not None and str(given).removesuffix("+") not in known:
                suggestion = _suggest(str(given), {*SPEC, *known})
                raise ConfigError(f"{key}.{given}: unknown key{suggestion}")
        place = key if direct and not init_args else f"{key}.init_args"
        self.arguments(parser, {**init_args, **direct}, place, "")


def _is_argument(action: Any) -> bool:
    typed = hasattr(action, "_typehint") or hasattr(action, "basetype")
    return typed and not action.dest.endswith(".help")


def _names(parser: Any, prefix: str) -> set[str]:
    dests = [a.dest for a in parser._actions if _is_argument(a)] if parser else []
    return {d.removeprefix(prefix).split(".")[0] for d in dests if d.startswith(prefix)}


def _refusal(key: str, value: Any, allowed: str) -> ConfigError:
    got = "null" if value is None else shorten(str(value), 80) or "an empty text"
    return ConfigError(f"{key}: got {got}, allowed: {allowed}")


def _is_null(value: Any, options: list[Any]) -> bool:
    """Whether a value is null where that means nothing; the parser lets it through everywhere."""
    typed = all(get_origin(o) or (inspect.isclass(o) and o is not object) for o in options)
    return value is None and typed and NoneType not in options


def _has_choices(bases: Sequence[Any]) -> bool:
    """Whether a class has to be named: there are others than the one that the type spells out."""
    return all(not is_dataclass(b) and inspect.isclass(b) and b.__subclasses__() for b in bases)


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _suggest(name: str, known: Iterable[str]) -> str:
    return nearest(name, known) or f"; known: {', '.join(sorted(known)) or 'none'}"


@cache
def _parser_of(cls: Any, skip: int) -> ArgumentParser | None:
    """A parser for the constructor's arguments; None where a signature says too little for one."""
    parser = ArgumentParser(exit_on_error=False)
    options: dict[str, Any] = {"fail_untyped": False, "sub_configs": True}
    try:
        if inspect.isclass(cls):
            parser.add_class_arguments(cls, skip={skip} if skip else None, **options)
        else:
            parser.add_function_arguments(cls, **options)
    except ValueError:
        return None
    return parser


def _options(hint: Any) -> Iterator[Any]:
    """The members of a union, or the hint alone."""
    if get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _options(member)
    else:
        yield hint


def _returned(hint: Any) -> Any:
    """The class that a callable hint returns, or None."""
    arguments = get_args(hint)
    if get_origin(hint) is Callable and len(arguments) == 2 and isinstance(arguments[0], list):
        return arguments[1] if inspect.isclass(arguments[1]) else None
    return None


def _is_class(hint: Any) -> bool:
    """Whether a value of this type is an object with arguments of its own."""
    plain = not inspect.isclass(hint) or hint.__module__ == "builtins" or get_origin(hint)
    return not plain and get_registered_type(hint) is None


def _is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return (
        inspect.isclass(origin) and issubclass(origin, Iterable) and origin not in (dict, Mapping)
    )


def _is_path(value: Any) -> bool:
    """Whether it is a text that looks like a class path rather than a file."""
    if not isinstance(value, str):
        return False
    return all(part.isidentifier() for part in value.split(".")) and find_file(value) is None


def find_file(value: str) -> str | None:
    """`value` where it names a configuration file."""
    return value if value.endswith((".yaml", ".yml", ".json")) else None


def _load(name: Any, bases: Sequence[Any], key: str) -> Any:
    """The class at a class path; a bare name is one of the known subclasses of `bases`."""
    known = {n: cls for base in bases for cls in _subclasses(base) for n in _paths(cls)}
    if not isinstance(name, str):
        raise ConfigError(f"{key}: got {name!r}, allowed: a class path")
    try:
        found = known.get(name) or (resolve_name(name) if "." in name else None)
    except (ImportError, AttributeError, ValueError) as error:
        module = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and not f"{name}.".startswith(f"{module}."):
            raise ConfigError(f"{key}: {name} needs {module!r}, which is not installed") from error
        found = None
    if not callable(found):
        raise ConfigError(f"{key}: no class {name!r}{nearest(name, [*known, *_siblings(name)])}")
    plain = [b for b in bases if not getattr(b, "_is_protocol", False)]
    if inspect.isclass(found) and len(plain) == len(bases) and not issubclass(found, tuple(plain)):
        wanted = " or ".join(b.__name__ for b in bases)
        choices = sorted(n for n in known if "." in n and n.startswith("teamtune."))
        hint = f"; known: {', '.join(choices)}" if choices else ""
        raise ConfigError(f"{key}: {name} is no {wanted}{hint}")
    for unusable, reason in UNUSABLE.items():
        if inspect.isclass(found) and issubclass(found, unusable):
            raise ConfigError(f"{key}: {name} {reason}")
    return found


def _siblings(name: str) -> list[str]:
    """What the module of a class path holds besides."""
    module = name.rpartition(".")[0]
    try:
        known = module in sys.modules or bool(module and find_spec(module))
    except (ImportError, ValueError):
        return []
    return [f"{module}.{n}" for n in dir(resolve_name(module)) if n[0] != "_"] if known else []


def _subclasses(base: Any) -> Iterator[Any]:
    yield base
    for cls in type.__subclasses__(base):
        yield from _subclasses(cls)


def _paths(cls: type) -> Iterator[str]:
    """A class's bare name and its shortest class path."""
    if inspect.isabstract(cls):
        return
    yield cls.__name__
    modules = cls.__module__.split(".")
    for end in range(1, len(modules) + 1):
        module = ".".join(modules[:end])
        if getattr(sys.modules.get(module), cls.__name__, None) is cls:
            yield f"{module}.{cls.__name__}"
            return


def _accepts(hint: Any, value: Any) -> bool:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=hint)
    try:
        parser.parse_object({"value": value})
    except ArgumentError:
        return False
    return True


def _describe(hint: Any) -> str:
    """A type in a user's words."""
    words = []
    for option in _options(hint):
        if get_origin(option) is Literal:
            words += [str(choice) for choice in get_args(option)]
        elif get_origin(option) is not None and get_origin(option) is not Callable:
            words.append("a mapping" if get_origin(option) in (dict, Mapping) else "a list")
        else:
            cls = _returned(option) or option
            words.append(_number(cls) or NAMES.get(cls) or str(getattr(cls, "__name__", cls)))
    return " or ".join(dict.fromkeys(words))


def _number(cls: Any) -> str:
    """A restricted number type in a user's words; an empty string for other types."""
    if not hasattr(cls, "_restrictions"):
        return ""
    limits = {sign: f"{limit:g}" for sign, limit in cls._restrictions if math.isfinite(limit)}
    least, most = limits.get(operator.ge), limits.get(operator.le)
    if least and most:
        return f"{NAMES[cls._type]} from {least} to {most}"
    words = [f"{LIMITS[sign]} {limit}" for sign, limit in limits.items()]
    return f"{NAMES[cls._type]} {' and '.join(words)}" if words else "a finite number"
