"""Imports point one way: a part uses only what CONTRIBUTING.md lists above it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/teamtune"
LAYERS = re.findall(
    r"^    src/teamtune/(\w+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
)


def imported(path: Path) -> set[str]:
    """The parts of the package that a file imports by name, but for types alone."""
    found = set()
    tree = ast.parse(path.read_text())
    typing = {node for step in tree.body if _is_typing(step) for node in ast.walk(step)}
    for node in set(ast.walk(tree)) - typing:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("teamtune."):
            found.add((node.module or "").split(".")[1])
    return found


def _is_typing(step: ast.stmt) -> bool:
    return isinstance(step, ast.If) and ast.unparse(step.test) == "TYPE_CHECKING"


def test_imports_point_upwards_in_the_list():
    assert len(LAYERS) > 8
    for part in sorted(SOURCE.iterdir()):
        name = part.stem
        files = sorted(part.rglob("*.py")) if part.is_dir() else [part]
        for path in (p for p in files if p.suffix == ".py" and name in LAYERS):
            allowed = {*LAYERS[: LAYERS.index(name) + 1]}
            assert imported(path) <= allowed, path.relative_to(ROOT)


def test_every_part_has_its_place():
    parts = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert parts - {"__init__"} == set(LAYERS)
