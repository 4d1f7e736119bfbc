"""Configuration files are merged key by key before anything parses them.

jsonargparse replaces whole dict entries, so that an overlay naming one policy would drop the
others. A file may name what it lies over: `base: base.yaml`, or a list, relative to the file.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader

from teamtune.errors import ConfigError, nearest

BASE = "base"
"""The key that names the file or files that a file lies over."""
MOST_NODES = 100_000
"""Keys and values of one file, each alias counted anew."""


def read_file(file: str | Path, above: Sequence[Path] = ()) -> dict[str, Any]:
    """The content of a file, merged over that of its bases.

    Args:
        file: Its path.
        above: The files that name it as their base.

    Raises:
        ConfigError: A file that cannot be read, is no mapping, or lies over itself.
    """
    path = Path(file).resolve()
    if path in above:
        raise ConfigError(f"{BASE}: {file} lies over itself")
    content = _load(file)
    bases = content.pop(BASE, [])
    merged: dict[str, Any] = {}
    for name in bases if isinstance(bases, list) else [bases]:
        if not isinstance(name, str):
            raise ConfigError(f"{BASE}: got {bases!r} in {file}, allowed: file names")
        merged = merge(merged, read_file(Path(file).parent / name, [*above, path]))
    return merge(merged, content)


def _load(file: str | Path) -> dict[str, Any]:
    """A file as plain mappings, lists, texts and numbers."""
    try:
        text = Path(file).read_text("utf-8")
        _check_nodes(file, yaml.compose(text, yaml.SafeLoader))
        content = json.loads(json.dumps(get_loader("yaml")(text), default=str))
    except OSError as error:
        raise ConfigError(f"--config: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config: {file} is no text file") from error
    except RecursionError as error:
        raise ConfigError(f"--config: {file}: nested too deeply") from error
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError, TypeError) as error:  # the latter of dates and of keys
        raise ConfigError(f"--config: {file}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--config: {file}: expected a mapping of keys")
    return content


def _check_nodes(file: str | Path, root: yaml.Node | None) -> None:
    """Raises ConfigError for a key given twice and for aliases that unfold beyond all measure."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node | None) -> int:
        if node is None or isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = MOST_NODES  # an alias to what is around it has no end
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            seen: set[str] = set()
            for key, _ in pairs:
                if key.value in seen and isinstance(key, yaml.ScalarNode):
                    line = key.start_mark.line + 1
                    raise ConfigError(f"--config: {file}:{line}: key {key.value!r} is given twice")
                seen |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
            children = [child for pair in pairs for child in pair] or node.value
            sizes[id(node)] = 1 + sum(map(size, children))
        return sizes[id(node)]

    if size(root) >= MOST_NODES:
        raise ConfigError(f"--config: {file}: more than {MOST_NODES} keys and values")


def merge(base: Any, overlay: Any) -> Any:
    """`overlay` over `base`: mappings key by key, lists of objects class by class, others replaced.

    An overlay with another `class_path` drops the init_args that were meant for the old class; a
    key that ends in `+` appends to a list, one that ends in `-` removes an entry.
    """
    if isinstance(base, str) and isinstance(overlay, dict) and set(overlay) == {"init_args"}:
        return {"class_path": base, **overlay}
    if isinstance(base, dict) and isinstance(overlay, str) and "class_path" in base:
        return base if _same_class(base["class_path"], overlay) else overlay
    if _are_objects(base) and _are_objects(overlay):
        return _merge_objects(base, overlay)
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return overlay
    if "class_path" in base and not _same_class(base["class_path"], overlay.get("class_path")):
        return overlay
    merged = dict(base)
    for key, value in overlay.items():
        name = key.rstrip("+-")
        if key.endswith("-"):
            if name not in merged:
                raise ConfigError(f"{key}: nothing to remove{nearest(name, merged)}")
            del merged[name]
        elif name != key and isinstance(merged.get(name), list):
            merged[name] = merged[name] + (value if isinstance(value, list) else [value])
        else:
            merged[key] = merge(merged[key], value) if key in merged else value
    return merged


def _are_objects(value: Any) -> bool:
    """Whether it is a list of specifications, as callbacks and loggers are."""
    items = value if isinstance(value, list) else []
    return bool(items) and all(isinstance(i, dict) and "class_path" in i for i in items)


def _merge_objects(base: list[dict[str, Any]], overlay: list[dict[str, Any]]) -> list[Any]:
    """The first of an overlay's objects goes over the first of its class in the base, and so on."""
    merged, free = list(base), list(range(len(base)))
    for item in overlay:
        at = next((i for i in free if _same_class(base[i]["class_path"], item["class_path"])), None)
        if at is None:
            merged.append(item)
        else:
            free.remove(at)
            merged[at] = merge(base[at], item)
    return merged


def _same_class(old: Any, new: Any) -> bool:
    """Whether a class path, or a class's bare name, is that of `old` too; None is."""
    if not (isinstance(old, str) and isinstance(new, str)):
        return new is None or old == new
    short = "." not in old or "." not in new
    return old == new or (short and old.rpartition(".")[2] == new.rpartition(".")[2])
