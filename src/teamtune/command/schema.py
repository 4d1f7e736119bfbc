"""The keys that constructors spell out: which a configuration may hold, and where a fault lies.

jsonargparse checks values too, but its messages list every type that did not match, and some
unknown keys pass unseen. This walks along the parser's own arguments, so that both know the same.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from jsonargparse import ArgumentError, ArgumentParser

from teamtune.errors import ConfigError, nearest

SPEC = ("class_path", "init_args", "dict_kwargs")
NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
}


@dataclass(frozen=True)
class Part:
    """One object that a configuration describes: where, of which class, from which arguments."""

    key: str
    cls: Callable[..., Any]
    values: dict[str, Any]
    skip: int = 0
    """How many first arguments the configuration leaves to the code, as in an optimizer."""

    def build(self) -> None:
        """Makes the object and forgets it; raises what its constructor raises."""
        parser = ArgumentParser(exit_on_error=False)
        parser.add_class_arguments(self.cls, "part", fail_untyped=False, sub_configs=True)
        parser.instantiate_classes(parser.parse_object({"part": self.values}))


def parts_of(parser: ArgumentParser, values: Mapping[str, Any], strict: bool = False) -> list[Part]:
    """The parts of a configuration, inner ones first.

    Args:
        parser: Whose arguments are the known keys.
        values: The configuration as plain mappings and lists.
        strict: Whether to check values and missing keys too, as a parser does.

    Raises:
        ConfigError: A key is unknown, or a class is.
    """
    walk = _Walk(strict)
    walk.arguments(parser, values, "", "")
    return walk.parts


def placed(error: Exception, parts: Iterable[Part], sections: Iterable[str]) -> str:
    """The message of what a constructor raised, with the whole key in front.

    Constructors name their own arguments. Which object it was is found by building each part on its
    own, inner ones first; they hold configuration only, so this does nothing else.
    """
    whole = " ".join(str(error).split())
    for part in parts:
        if part.skip or not inspect.isclass(part.cls) or part.key == "trainer":
            continue
        try:
            part.build()
        except ArgumentError:
            continue
        except ValueError as raised:
            message = str(raised)
            if " ".join(message.split()) not in whole:  # a union's error quotes its members'
                continue
            first = message.replace(":", ".").split(".")[0]
            cls: Any = part.cls
            if first in _names(_parser_of(cls, 0), ""):
                return f"{part.key}.{message}"
            return message if first in sections else f"{part.key}: {message}"
    return str(error)


class _Walk:
    def __init__(self, strict: bool):
        self.strict = strict
        self.parts: list[Part] = []

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
                if hasattr(action, "basetype"):
                    self.parts.append(Part(place, action.basetype, dict(value)))
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
        if isinstance(value, Mapping) and (classes or mapping):
            if classes and ("class_path" in value or mapping is None):
                self._object(classes, value, key, default)
            else:
                for name, item in value.items():
                    self.value(get_args(mapping)[1], item, _join(key, str(name)))
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for option in options:
                items = get_args(option)
                if items and get_origin(option) not in (dict, Mapping) and not _returned(option):
                    for index, item in enumerate(value):
                        self.value(items[0], item, _join(key, str(index)))
                    break
        elif classes and _is_path(value) and not any(o in (int, float, str) for o in options):
            _load(value, [_returned(c) or c for c in classes], key)
        elif _is_null(value, options) or (self.strict and not _accepts(hint, value)):
            value = "null" if value is None else value
            raise ConfigError(f"{key}: got {value}, allowed: {_describe(hint)}")

    def _object(self, classes: list[Any], value: Mapping[str, Any], key: str, default: Any) -> None:
        bases = [_returned(c) or c for c in classes]
        skip = max(len(get_args(c)[0]) if _returned(c) else 0 for c in classes)
        name = value.get("class_path")
        if name is None:
            name = getattr(default, "class_path", None)
        cls = bases[0] if name is None else _load(name, bases, f"{key}.class_path")
        parser = _parser_of(cls, skip)
        if parser is None or inspect.isabstract(cls):
            return
        init_args = value.get("init_args") or {}
        direct = {
            k: v for k, v in value.items() if k not in ("class_path", "init_args", "dict_kwargs")
        }
        if not isinstance(init_args, Mapping):
            raise ConfigError(f"{key}.init_args: got {init_args!r}, allowed: a mapping of keys")
        known = _names(parser, "")
        for given in direct:
            if name is not None and str(given).removesuffix("+") not in known:
                suggestion = _suggest(str(given), {*SPEC, *known})
                raise ConfigError(f"{key}.{given}: unknown key{suggestion}")
        place = key if direct and not init_args else f"{key}.init_args"
        values = {**init_args, **direct}
        self.arguments(parser, values, place, "")
        self.parts.append(Part(place, cls, values, skip))


def _is_argument(action: Any) -> bool:
    typed = hasattr(action, "_typehint") or hasattr(action, "basetype")
    return typed and not action.dest.endswith(".help")


def _names(parser: Any, prefix: str) -> set[str]:
    dests = [a.dest for a in parser._actions if _is_argument(a)] if parser else []
    return {d.removeprefix(prefix).split(".")[0] for d in dests if d.startswith(prefix)}


def _is_null(value: Any, options: list[Any]) -> bool:
    """Whether a value is null where that means nothing; the parser lets it through everywhere."""
    typed = all(o in (int, float, bool, str) or get_origin(o) or _is_class(o) for o in options)
    return value is None and typed


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
    return inspect.isclass(hint) and hint.__module__ != "builtins" and get_origin(hint) is None


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
    if name in known:
        return known[name]
    try:
        found = resolve_name(name) if "." in name else None
    except (ImportError, AttributeError, ValueError) as error:
        module = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and not f"{name}.".startswith(f"{module}."):
            raise ConfigError(f"{key}: {name} needs {module!r}, which is not installed") from error
        found = None
    if found is None:
        raise ConfigError(f"{key}: no class {name!r}{nearest(name, [*known, *_siblings(name)])}")
    plain = [b for b in bases if not getattr(b, "_is_protocol", False)]
    if inspect.isclass(found) and len(plain) == len(bases) and not issubclass(found, tuple(plain)):
        wanted = " or ".join(b.__name__ for b in bases)
        choices = sorted(n for n in known if "." in n and n.startswith("teamtune."))
        hint = f"; known: {', '.join(choices)}" if choices else ""
        raise ConfigError(f"{key}: {name} is no {wanted}{hint}")
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
            words.append(str(NAMES.get(cls) or getattr(cls, "__name__", cls)))
    return " or ".join(dict.fromkeys(words))
