"""The verifier's process: bad answers, answers that are programs, what is not installed."""

import asyncio
import pickle

import pytest

from teamtune.envs.reasoning_gym.library import Library, Score
from teamtune.errors import ConfigError


@pytest.fixture(scope="module")
def judges():
    judges = Library("chain_sum", {}, timeout=5.0, workers=1).judges
    yield judges
    judges.close()


def library(judges, name, timeout=5.0, **options):
    made = Library(name, options, timeout, workers=1)
    made.judges = judges
    return made


def score(library, answer, seed=0):
    return asyncio.run(library.score(library.make(seed), answer))


def test_a_verifier_that_raises_is_survived_and_explained(judges):
    found = score(library(judges, "prime_factorization"), "no idea")
    assert found == Score(0.0, found.trouble)
    assert found.trouble.startswith("It cannot be read: ValueError: invalid literal for int()")
    assert score(library(judges, "prime_factorization"), "17").trouble == ""


def test_a_tower_of_powers_costs_its_time_and_the_next_answer_is_scored(judges):
    countdown = library(judges, "countdown", timeout=1.0)
    assert score(countdown, "9**9**9**9**9") == Score(0.0, "It takes too long to check.")
    problem = countdown.make(0)
    assert asyncio.run(countdown.score(problem, problem["answer"])) == Score(1.0)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        *[(name, 0.0) for name in ("binary_matrix", "n_queens", "spiral_matrix")],
        *[("string_insertion", 0.0), ("polynomial_multiplication", 0.0)],
        *[("simple_integration", 0.0), ("countdown", 0.01), ("puzzle24", 0.01)],
    ],
)
@pytest.mark.parametrize(
    "program",
    [
        "[__import__('os')._exit(1)]",
        "exit(1)",
        "exec(chr(105))",
        "sqrt('open(1)')",
        "(1).__class__",
        "[].append.__self__",
    ],
)
def test_an_answer_never_runs_as_a_program(judges, name, kept, program):
    gym = library(judges, name)
    problem = gym.make(0)
    (before,) = judges._pool._alive
    assert asyncio.run(gym.score(problem, program)) in (Score(kept), Score(0.0))
    assert judges._pool._alive == {before}


@pytest.mark.parametrize("answer", ["x**2 - 3*x + sin(2*x)/2 + exp(-x) + C", "sqrt(4)", "2.5e3"])
def test_formulas_are_read_as_before(judges, answer):
    problem = library(judges, "simple_integration").make(0)
    problem["metadata"] = "{'variable': 'x', 'integrand': '2*x - 3 + cos(2*x) - exp(-x)'}"
    found = asyncio.run(library(judges, "simple_integration").score(problem, answer))
    assert found == Score(float(answer.startswith("x")))


def test_an_integral_is_not_solved_by_writing_it_down(judges):
    gym = library(judges, "simple_integration")
    problem = gym.make(0) | {"metadata": "{'variable': 'x', 'integrand': '2*x'}"}
    for answer, worth in (("x**2 + C", 1.0), ("Integral(2*x, x) + C", 0.0)):
        assert asyncio.run(gym.score(problem, answer)) == Score(worth)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("chian_sum", {}, "dataset: got 'chian_sum', allowed: chain_sum, decimal_chain_sum"),
        ("poetry", {}, "dataset: got 'poetry', allowed: ab, acre, "),
        ("chain_sum", {"max_trems": 3}, "options: got 'max_trems', allowed: max_terms, min_terms"),
        ("chain_sum", {"seed": 3}, "options: got 'seed', allowed: allow_negation, max_digits"),
        ("chain_sum", {"max_terms": 1}, "makes no problem 0: AssertionError: max_terms must be"),
        ("chain_sum", {"max_terms": "x"}, "makes no problem 0: TypeError: "),
    ],
)
def test_what_cannot_be_made_is_one_line(judges, name, options, words):
    with pytest.raises(ConfigError, match=words) as raised:
        library(judges, name, **options).make(0)
    assert "\n" not in str(raised.value)


def test_a_generator_that_takes_too_long_is_refused(judges, monkeypatch):
    monkeypatch.setattr("teamtune.envs.reasoning_gym.library._MAKING_SECONDS", 0.05)
    with pytest.raises(ConfigError, match="knight_swap takes more than 0.05 s to make problem 0"):
        library(judges, "knight_swap").make(0)


def test_without_reasoning_gym_it_says_what_to_install(monkeypatch):
    missing = Library("chain_sum", {}, timeout=5.0, workers=1)
    missing.judges._command[-2] = "/nowhere/judge.py"
    monkeypatch.setattr("teamtune.envs.reasoning_gym.library.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match='reasoning-gym is not installed: pip install "team'):
        missing.make(0)


def test_it_can_be_copied_to_another_process(judges):
    copy = pickle.loads(pickle.dumps(library(judges, "chain_sum")))
    assert copy.dataset == "chain_sum" and copy.judges._pool is None
