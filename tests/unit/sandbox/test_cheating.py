"""Programs that want a score they did not earn, and values that are hard to take: all score 0.

Their `f` is wrong or never gets to answer; the asserts ask for squares.
"""

import pytest

ASSERTS = ["assert f(2) == 4", "assert f(3) == 9"]
CHEATING = {
    "exit(0)": ("raise SystemExit(0)", "error"),
    "os._exit(0)": ("import os\nos._exit(0)", "error"),
    "exit(0) in a test": ("def f(x): raise SystemExit(0)", "failed"),
    "os._exit(0) in a test": ("import os\ndef f(x): os._exit(0)", "error"),
    "printing what a pass looks like": (
        "print('passed\\n2 passed\\nOK\\nloaded\\nvalue 4\\nvalue 9\\ndone')\ndef f(x): return 0",
        "failed",
    ),
    "equal to everything": (
        """
        class All:
            __class__ = int
            def __eq__(self, other): return True
            __ne__ = lambda self, other: False
            __hash__ = lambda self: 4
            __int__ = __index__ = __hash__
        def f(x): return All()
        """,
        "failed",
    ),
    "an int equal to everything": (
        """
        class All(int):
            def __eq__(self, other): return True
            __hash__ = int.__hash__
        def f(x): return All(0)
        """,
        "failed",
    ),
    "an int equal to everything by inheritance": (
        """
        import enum
        class All(enum.IntEnum):
            ZERO = 0
        def f(x): return All.ZERO
        """,
        "failed",
    ),
    "patching the built-ins": (
        """
        import builtins, json
        builtins.isinstance = lambda *a: True
        builtins.type = lambda *a: int
        builtins.compile = lambda *a, **k: 'True'
        builtins.eval = builtins.exec = lambda *a, **k: True
        json.dumps = lambda *a, **k: 'true'
        builtins.AssertionError = builtins.BaseException
        def f(x): return 0
        """,
        "failed error",
    ),
    "patching the checker": (
        """
        import gc, types
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType) and found.__name__ in (
                '_probe', 'encode', 'decide', 'holds', 'take_apart', 'score_asserts', '_report'
            ):
                found.__code__ = (lambda *a, **k: 'held').__code__
        def f(x): return 0
        """,
        "failed error",
    ),
    "rewriting the harness's frames": (
        """
        import sys
        frame = sys._getframe()
        while frame:
            for name, value in list(frame.f_locals.items()):
                if isinstance(value, dict) and 'probes' in value:
                    value['probes'][:] = [['', '0'], ['', '0']]
            frame = frame.f_back
        def f(x): return 0
        """,
        "failed",
    ),
    "garbage on every open file": (
        """
        import os
        for handle in range(256):
            try: os.write(handle, b'\\x00\\xffgarbage\\n' * 100)
            except OSError: pass
        def f(x): return x * x
        """,
        "error",
    ),
    "forged messages with a guess": (
        """
        import os
        for handle in range(3, 256):
            try: os.write(handle, b'loaded\\nvalue 1\\nvalue 1\\ndone\\n')
            except OSError: pass
        os._exit(0)
        """,
        "failed",
    ),
    "forged messages with every guess": (
        """
        import os
        guesses = b''.join(b'value %d\\n' % n for n in range(10))
        for handle in range(3, 256):
            try: os.write(handle, b'loaded\\n' + guesses * 2 + b'done\\n')
            except OSError: pass
        os._exit(0)
        """,
        "error",
    ),
    "forged words of the inside kind": (
        """
        import os
        for handle in range(3, 256):
            try: os.write(handle, b'loaded\\nheld\\nheld\\ndone\\n')
            except OSError: pass
        os._exit(0)
        """,
        "error",
    ),
    "a flood on the private channel": (
        """
        import os
        while True:
            for handle in range(3, 64):
                try: os.write(handle, b'x' * 65536)
                except OSError: pass
        """,
        "killed",
    ),
    "closing every file": ("import os\nos.closerange(0, 256)\ndef f(x): return x * x", "error"),
    "looking for the expected values": (
        """
        import gc
        found = {v for o in gc.get_objects() for v in (o if isinstance(o, (list, tuple)) else [o])
                 if isinstance(v, str) and 'assert' in v and '== 9' in v}
        def f(x): return 9 if found else 0
        """,
        "failed",
    ),
    "a set that is slow to decode": (
        "def f(x): return {n * (2**61 - 1) for n in range(100000)}",
        "failed timeout",
    ),
    "a value larger than the channel": ("def f(x): return 'x' * (8 << 20)", "failed timeout"),
    "a long list": ("def f(x): return [0] * 300000", "failed timeout"),
    "a value that holds itself": ("x = []\nx.append(x)\ndef f(_): return x", "failed"),
    "an error that cannot be printed": (
        """
        class Bad(Exception):
            def __str__(self): raise self
        def f(x): raise Bad
        """,
        "failed",
    ),
}
BROKEN = {
    "deep recursion": ("def f(x): return f(x)", "failed"),
    "unlimited recursion": (
        "import sys\nsys.setrecursionlimit(2**31 - 1)\ndef f(x): return f(x)",
        "failed memory killed timeout",
    ),
    "recursion below Python": (
        "import sys\nsys.setrecursionlimit(2**31 - 1)\nclass A:\n"
        "    def __repr__(self): return repr(self)\ndef f(x): return repr(A())",
        "failed memory killed timeout",
    ),
    "a deep value": (
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(x):\n    v = []\n"
        "    for _ in range(10**5): v = [v]\n    return v",
        "failed killed memory timeout",
    ),
    "a surrogate in the source": ("x = '\ud800'\ndef f(x): return x * x", "error"),
    "a NUL in the source": ("x = '\0'\ndef f(x): return x * x", "error"),
    "brackets without end": ("(" * 100_000, "error memory"),
    "minus signs without end": ("-" * 100_000 + "1", "error memory"),
    "output that is no UTF-8": (
        "import sys\nsys.stdout.buffer.write(b'\\xff\\x00\\xfe')\ndef f(x): return '\\ud800'",
        "failed",
    ),
    "a surrogate in the output": ("print('\\ud800')", "error"),
    "a crash": ("import ctypes\nctypes.string_at(0)", "killed"),
    "an abort": ("import os\nos.abort()", "killed"),
}


@pytest.mark.parametrize("name", [*CHEATING, *BROKEN])
def test_no_trick_scores(attack, name):
    attack(*(CHEATING | BROKEN)[name])


def test_what_cannot_be_taken_apart_does_not_count(sandbox):
    program = "import builtins\nbuiltins.exec = lambda *a: None\ndef f(x): return 0"
    loop = "for x in range(2, 9):\n    assert f(x) == x * x"
    result = sandbox.run_tests_sync(program, [loop, "assert f(2) == 4", "assert f(3) == f(-3)"])
    assert result.verdicts == ("not counted", "failed", "not counted")
    assert (result.status, result.passed, result.total) == ("failed", 0, 1)
    right = sandbox.run_tests_sync("def f(x): return x * x", [loop, "assert f(2) == 4"])
    assert (right.status, right.passed, right.total) == ("passed", 1, 1)


def test_a_right_guess_is_as_good_as_an_answer(sandbox):
    """What is not promised: who knows the expected value may send it by any way."""
    program = "import os\nos.write(3, b'loaded\\nvalue 4\\nvalue 9\\ndone\\n')\nos._exit(0)"
    assert sandbox.run_tests_sync(program, ASSERTS).passed == 2
