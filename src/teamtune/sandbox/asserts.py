"""Taking an assert apart: what the program has to compute, and what is expected of it.

`assert f(1, 2) == 3` becomes the expression `f(1, 2)`, which the program's process evaluates, and
the judgement `== 3`, which never goes there. An assert is taken apart only where the shipped value
decides alone: `(f(1) - 3) == 0` is not, since an object of the program's could make it 0.
"""

import ast
import builtins
from dataclasses import dataclass
from functools import lru_cache

from teamtune.sandbox.constants import Constants
from teamtune.sandbox.judges import Comparison, IsClose, Judge, Near, Truth
from teamtune.sandbox.syntax_tree import LONGEST_TEST, parse_tree
from teamtune.sandbox.values import encode

_BUILTINS = frozenset(dir(builtins))
_CONVERSIONS = frozenset(
    ("list", "tuple", "set", "frozenset", "dict", "sorted", "reversed", "len", "str", "int")
    + ("float", "complex", "bool", "repr", "round", "sum", "min", "max", "abs", "ord", "chr")
)
_ONE_BIT = (True, False, None)
_ABS = ("abs", "math.fabs", "fabs")
_ISCLOSE = ("math.isclose", "isclose")


_CACHED = 8192
"""Asserts whose parts are kept: many programs are tried on the same ones."""


@dataclass(frozen=True, slots=True)
class Part:
    """One expression of the program's and the condition on its value."""

    source: str
    judge: Judge


@dataclass(frozen=True, slots=True)
class Assert:
    """A test: all `parts` must hold."""

    parts: tuple[Part, ...]
    prelude: str = ""
    """Statements before the assert; they run in the program's process."""


@lru_cache(_CACHED)
def take_apart(source: str) -> Assert | None:
    """The parts of one assert statement, which may have other statements before it.

    None for what does not come apart, loops for instance, and for what is no assert: only the
    program's own process could decide it.
    """
    try:
        body = parse_tree(source, longest=LONGEST_TEST).body
        if not body or not isinstance(body[-1], ast.Assert):
            return None
        prelude = body[:-1]
        own = {name.id for step in prelude for name in ast.walk(step) if isinstance(name, ast.Name)}
        own |= {step.name for step in prelude if isinstance(step, ast.FunctionDef | ast.ClassDef)}
        own |= {alias.asname or alias.name for step in prelude for alias in _aliases(step)}
        parts = _Splitter(frozenset(own)).split(body[-1].test)
        for part in parts or ():
            part.judge.size()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Assert(tuple(parts), ast.unparse(ast.Module(prelude, []))) if parts else None


def _aliases(step: ast.stmt) -> list[ast.alias]:
    return step.names if isinstance(step, ast.Import | ast.ImportFrom) else []


class _Splitter:
    """Splits the condition of an assert; `own` are names that the test itself defines."""

    def __init__(self, own: frozenset[str]):
        self._own = own
        constants = Constants()
        self._has, self._value = constants.has, constants.value

    def split(self, test: ast.expr) -> list[Part] | None:
        """The parts that must all hold, or None where the shipped values would not decide."""
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                found = [self.split(value) for value in values]
                return None if None in found else [part for parts in found for part in parts or ()]
            case ast.UnaryOp(op=ast.Not(), operand=operand) if self._is_answer(operand):
                return [_truth(operand, False)]
            case ast.Compare(
                left=ast.Compare() | ast.UnaryOp(op=ast.Not()) as inner,
                ops=[ast.Eq() | ast.Is()],
                comparators=[ast.Constant(value=True)],
            ):
                return self.split(inner)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._near(left, op, right) or self._comparison(left, op, right)
            case ast.Call(func=func) if ast.unparse(func) in _ISCLOSE:
                return self._isclose(test)
            case ast.Call() if self._is_answer(test):
                return [_truth(test, True)]
        return None

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> list[Part] | None:
        for value, expected, first in ((left, right, False), (right, left, True)):
            if not self._has(expected):
                continue
            wanted = self._value(expected)
            one_bit = any(wanted is bit for bit in _ONE_BIT)
            if isinstance(op, ast.Is | ast.IsNot) and not one_bit:
                return None
            if not (self._is_answer(value) if one_bit else self._is_observable(value)):
                return None
            encode(wanted)
            return [Part(ast.unparse(value), Comparison(type(op).__name__, wanted, first))]
        return None

    def _near(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> list[Part] | None:
        """`abs(f(x) - y) < tolerance`."""
        match left:
            case ast.Call(func=func, args=[ast.BinOp(left=a, op=ast.Sub(), right=b)], keywords=[]):
                if ast.unparse(func) not in _ABS or not isinstance(op, ast.Lt | ast.LtE):
                    return None
            case _:
                return None
        for value, expected in ((a, b), (b, a)):
            if self._has(expected, right) and self._is_observable(value):
                judge = Near(self._value(expected), self._value(right), type(op).__name__)
                return [Part(ast.unparse(value), judge)]
        return None

    def _isclose(self, test: ast.Call) -> list[Part] | None:
        match test.args:
            case [a, b]:
                pass
            case _:
                return None
        options = {word.arg: word.value for word in test.keywords}
        if not options.keys() <= {"rel_tol", "abs_tol"}:
            return None
        if not self._has(*options.values()):
            return None
        given = {str(name): self._value(option) for name, option in options.items()}
        for value, expected in ((a, b), (b, a)):
            if self._has(expected) and self._is_observable(value):
                return [Part(ast.unparse(value), IsClose(self._value(expected), **given))]
        return None

    def _is_answer(self, node: ast.expr) -> bool:
        """A plain call of the program's, so that one bit of it is the program's own answer.

        `f(x)` and `Solution().f(x)`; not `f(x).startswith("a")`, which shows the expected "a".
        """
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return self._is_programs(name) or (
                    name not in _CONVERSIONS and self._is_closed(node)
                )
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id=name)))):
                return self._is_programs(name) and name[:1].isupper()
        return False

    def _is_closed(self, call: ast.Call) -> bool:
        """Only constants as arguments; a builtin's name may be one that the program redefines."""
        return self._has(*call.args, *(word.value for word in call.keywords))

    def _is_programs(self, name: str) -> bool:
        return name not in _BUILTINS and name not in self._own

    def _is_observable(self, node: ast.expr) -> bool:
        """Made of the program's answers and conversions of them, without any judgement inside."""
        see = self._is_observable
        match node:
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                if name in _CONVERSIONS and not self._is_closed(node):
                    return all(map(see, args)) and self._has(*(k.value for k in keywords))
                return self._is_programs(name) or self._is_closed(node)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return see(value) and not attr.startswith("__")
            case ast.Attribute(value=value) | ast.UnaryOp(op=ast.USub(), operand=value):
                return see(value)
            case ast.Subscript(value=value):
                return see(value)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return all(map(see, items))
            case ast.ListComp(elt=item, generators=loops):
                return see(item) and not any(loop.ifs for loop in loops)
            case ast.Name(id=name):
                return name not in self._own
        return self._has(node)


def _truth(node: ast.expr, wanted: bool) -> Part:
    return Part(f"not not ({ast.unparse(node)})", Truth(wanted))
