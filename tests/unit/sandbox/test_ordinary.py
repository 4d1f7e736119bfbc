"""Programs that mean no harm: what passes, what fails, and what is said about it."""

import pytest
from jsonargparse import ArgumentError, ArgumentParser

from teamtune.errors import ConfigError
from teamtune.sandbox import Sandbox

SQUARE = "def f(x):\n    return x * x\n"


def test_a_script_reads_its_input_and_prints(sandbox):
    result = sandbox.run_sync("a, b = map(int, input().split())\nprint(a + b)", "2 40\n")
    assert (result.status, result.stdout, result.error) == ("passed", "42\n", "")
    assert (result.passed, result.total) == (0, 0)
    assert 0 < result.seconds < 5


@pytest.mark.parametrize(
    ("program", "stdout"),
    [
        ("import sys\nprint(sys.stdin.read().upper(), end='')", "A\nÄ\n"),
        ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", "a\nä\n"),
        ("import os\nos.write(1, os.read(0, 99))", "a\nä\n"),
        ("print(open(0).read(), end='')", "a\nä\n"),
        ("import sys\nfor line in sys.stdin: print(line, end='')\nsys.exit()", "a\nä\n"),
        ("if __name__ == '__main__':\n    print(1)", "1\n"),
        ("import threading\nthreading.Thread(target=print, args=(1,)).start()", "1\n"),
        ("import atexit\natexit.register(print, 'late')\nraise SystemExit(0)", "late\n"),
        ("open('note', 'w').write('kept')\nprint(open('note').read())", "kept\n"),
        ("import tempfile\nf = tempfile.TemporaryFile()\nprint(f.write(b'abc'))", "3\n"),
        ("import dataclasses\n@dataclasses.dataclass\nclass A:\n  x: int\nprint(A(1).x)", "1\n"),
        ("import asyncio\nasync def f():\n  print(1)\nasyncio.run(f())", "1\n"),
        ("import sqlite3, zoneinfo, ssl, lzma, unicodedata, ctypes\nprint(1)", "1\n"),
        ("import os, sys\nprint(dict(os.environ), sys.argv)", "{} ['program.py']\n"),
    ],
)
def test_usual_idioms_of_scripts(sandbox, program, stdout):
    result = sandbox.run_sync(program, "a\nä\n")
    assert (result.status, result.stdout) == ("passed", stdout), result


def test_deep_recursion_in_a_thread_of_its_own_works(sandbox):
    program = """
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(2**26)
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
thread = threading.Thread(target=lambda: print(depth(20000)))
thread.start()
thread.join()
"""
    assert sandbox.run_sync(program).stdout == "20000\n"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("x = 1\n1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import numpy", "ModuleNotFoundError: No module named 'numpy'"),
        ("import values", "ModuleNotFoundError"),
        ("import teamtune", "ModuleNotFoundError"),
        ("input()", "EOFError"),
        ("raise ValueError('a\\nb\\x1b[31m\\ud800')", "ValueError: a b [31m?"),
    ],
)
def test_a_script_that_raises_is_an_error_and_says_which(sandbox, program, error):
    result = sandbox.run_sync(program)
    assert result.status == "error"
    assert error in result.error


def test_what_a_program_printed_before_it_raised_or_was_killed_is_kept(sandbox):
    raised = sandbox.run_sync("print('so far')\n1 / 0\nprint('never')")
    assert (raised.status, raised.stdout) == ("error", "so far\n")
    killed = sandbox.run_sync("import ctypes\nprint('so far', flush=True)\nctypes.string_at(0)")
    assert (killed.status, killed.stdout) == ("killed", "so far\n")


def test_a_program_that_meets_all_asserts_passes(sandbox):
    asserts = ["assert f(3) == 9", "assert f(2) == 4.0", "assert abs(f(0.1) - 0.01) < 1e-9"]
    result = sandbox.run_tests_sync(SQUARE, asserts)
    assert (result.status, result.passed, result.total) == ("passed", 3, 3)


def test_partial_passes_are_counted(sandbox):
    asserts = ["assert f(3) == 9", "assert f(3) == 10", "assert f('a') == 1", "assert f(1) == 1"]
    result = sandbox.run_tests_sync(SQUARE, asserts)
    assert (result.status, result.passed, result.total) == ("failed", 2, 4)
    assert result.verdicts == ("passed", "failed", "error", "passed")
    assert result.error == "assert 1: got 9"


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ("[1, 2]", True),
        ("(1, 2)", False),
        ("[1.0, 2]", True),
        ("[True, 2]", True),
        ("['1', 2]", False),
        ("range(1, 3)", False),
        ("(x for x in [1, 2])", False),
        ("[1, 2, 3]", False),
        ("None", False),
        ("{1: 2}", False),
    ],
)
def test_values_compare_as_in_python(sandbox, value, holds):
    result = sandbox.run_tests_sync(f"def f(): return {value}", ["assert f() == [1, 2]"])
    assert (result.status == "passed") is holds


@pytest.mark.parametrize(
    ("returned", "assertion", "holds"),
    [
        ("(x for x in [1, 2])", "assert list(f()) == [1, 2]", True),
        ("[1, 2]", "assert tuple(f()) == (1, 2)", True),
        ("0.1 + 0.2", "assert f() == 0.3", False),
        ("0.1 + 0.2", "assert abs(f() - 0.3) < 1e-6", True),
        ("0.31", "assert abs(f() - 0.3) < 1e-6", False),
        ("float('nan')", "assert f() == float('nan')", False),
        ("0.1 + 0.2", "assert math.isclose(f(), 0.3)", True),
        ("0.31", "assert math.isclose(f(), 0.3)", False),
        ("'abc'", "assert abs(f() - 0.3) < 1e-6", False),
        ("10 ** 400", "assert abs(f() - 0.5) < 1e-6", False),
        ("[]", "assert not f()", True),
        ("[0]", "assert not f()", False),
        ("None", "assert f() is None", True),
        ("1", "assert f() is True", False),
        ("3", "assert f() in (1, 2, 3)", True),
        ("[3]", "assert 4 in f()", False),
        ("1, 2", "assert f() == (1, 2) and f()[0] == 1", True),
        ("1, 2", "assert f() == (1, 2) and f()[0] == 2", False),
        ("2 ** 20000", "assert f() == 2 ** 20001", False),
        ("'\\ud800\\0'", "assert f() == '\\ud800\\0'", True),
        ("__import__('collections').Counter('aab')", "assert f() == {'a': 2, 'b': 1}", True),
        ("__import__('fractions').Fraction(1, 2)", "assert f() == 0.5", True),
        ("__import__('fractions').Fraction(2, 4)", "assert f() == Fraction(1, 2)", True),
        ("0.5", "from fractions import Fraction\nassert f() == Fraction(1, 2)", True),
        ("__import__('fractions').Fraction(1, 3)", "assert f() == Fraction(1, 2)", False),
        ("__import__('decimal').Decimal('1.10')", "assert f() == Decimal('1.1')", True),
        ("__import__('decimal').Decimal('1.1')", "assert f() == 1.1", False),
        ("__import__('decimal').Decimal('sNaN')", "assert f() == 1", False),
        ("__import__('decimal').Decimal('1e999999999')", "assert f() == 10 ** 9", False),
        ("{2: 1, 1: 0}.keys()", "assert f() == {1, 2}", True),
        ("{1, 2}", "assert f() == {2: 1, 1: 0}.keys()", True),
        ("{2: 1}.items()", "assert f() == {(2, 1)}", True),
        ("{2: 1}.values()", "assert f() == [1]", False),
        ("{2: 1}.values()", "assert 1 in f()", True),
        ("bytearray(b'ab')", "assert f() == b'ab'", True),
        ("b'ab'", "assert f() == bytearray(b'ab')", True),
    ],
)
def test_forms_of_asserts(sandbox, returned, assertion, holds):
    result = sandbox.run_tests_sync(f"def f(): return {returned}", [assertion])
    assert result.total == 1
    assert (result.status == "passed") is holds, result


def test_statements_before_an_assert_do_not_touch_the_program(sandbox):
    program = "x = 5\ndef f(y): return x + y"
    asserts = ["x = 1\nassert f(x) == 6", "assert f(0) == 5", "assert x == 5"]
    assert sandbox.run_tests_sync(program, asserts).passed == 3


def test_what_is_under_main_does_not_run_in_tests(sandbox):
    program = SQUARE + "if __name__ == '__main__':\n    print(input())\n"
    result = sandbox.run_tests_sync(program, ["assert f(2) == 4"])
    assert (result.status, result.stdout) == ("passed", "")


def test_a_program_that_does_not_load_passes_nothing(sandbox):
    result = sandbox.run_tests_sync("def f(x) return x", ["assert True", "assert f(1) == 1"])
    assert (result.status, result.passed, result.total) == ("error", 0, 1)
    assert result.verdicts == ("not counted", "not run")


def test_what_held_before_the_time_was_over_still_counts(sandbox):
    program = "def f(x):\n    while x > 1: pass\n    return x"
    asserts = ["assert f(1) == 1", "assert f(2) == 2", "assert f(0) == 0"]
    result = sandbox.run_tests_sync(program, asserts, timeout=0.5)
    assert (result.status, result.verdicts) == ("timeout", ("passed", "not run", "not run"))


def test_memory_that_ran_out_in_a_test_is_named(sandbox):
    result = sandbox.run_tests_sync(
        "def f(x): return len(bytearray(x))", ["assert f(2) == 2", "assert f(10**10) == 10**10"]
    )
    assert (result.status, result.verdicts) == ("memory", ("passed", "error"))


def test_output_is_cut_at_the_limit():
    small = Sandbox(output_kb=1, workers=1)
    fits, cut = small.run_sync("print('x' * 1000)"), small.run_sync("print('y' * 3000)")
    small.close()
    assert (fits.status, len(fits.stdout)) == ("passed", 1001)
    assert (cut.status, cut.stdout) == ("killed", "y" * 1024)
    assert "output" in cut.error


def test_random_numbers_and_sets_are_the_same_every_time(sandbox):
    program = "import random\nprint(random.random(), {'a', 'b', 'c', 'd'}, hash('x'))"
    assert len({sandbox.run_sync(program).stdout for _ in range(4)}) == 1


def test_nothing_is_left_for_the_next_program(sandbox):
    first = "import builtins, math, os\nbuiltins.leak = math.leak = 1\nopen('leak', 'w').close()"
    second = "import math, os\nprint(os.listdir('.'), hasattr(math, 'leak'), 'leak' in globals())"
    second += "\ntry: print(leak)\nexcept NameError: print('none')"
    for _ in range(3):
        assert sandbox.run_sync(first).status == "passed"
    for _ in range(3):
        assert sandbox.run_sync(second).stdout == "[] False False\nnone\n"


@pytest.mark.parametrize(
    "asserts",
    [[], "assert f(1)", [""], ["pass"], ["# f"], ["f(1) == 2"], ["x = f(1)"], ["f(2) == 4", "f"]]
    + [["check(f)"], ["for x in [1]: assert f(x)", "if f(1) != 2: raise ValueError"]],
)
def test_tests_of_which_none_counts_are_refused(sandbox, asserts):
    with pytest.raises(ValueError, match="asserts"):
        sandbox.run_tests_sync(SQUARE, asserts)


def test_a_byte_order_mark_is_no_syntax_error(sandbox):
    assert sandbox.run_sync("\ufeffprint(1)").stdout == "1\n"
    assert sandbox.run_tests_sync("\ufeff" + SQUARE, ["\ufeffassert f(2) == 4"]).passed == 1


@pytest.mark.parametrize(("argument", "value"), [("timeout", 3601), ("memory_mb", 63)])
def test_values_out_of_range_name_the_argument(argument, value):
    with pytest.raises(ConfigError, match=rf"^{argument}: got {value}, allowed"):
        Sandbox(**{argument: value})


@pytest.mark.parametrize(
    "argument", ["timeout", "memory_mb", "file_mb", "disk_mb", "output_kb", "workers"]
)
def test_a_configuration_cannot_hold_numbers_out_of_range(argument):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Sandbox)
    with pytest.raises(ArgumentError, match=argument):
        parser.parse_object({argument: -1})


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_must_be_positive_and_end(sandbox, timeout):
    with pytest.raises(ValueError, match="timeout"):
        sandbox.run_sync("pass", timeout=timeout)


def test_the_smallest_memory_is_enough_to_start_in():
    small = Sandbox(memory_mb=64, workers=1)
    assert small.run_sync("import random, json\nprint(1)").stdout == "1\n"
    assert small.run_sync("x = bytearray(64 << 20)").status == "memory"
    small.close()
