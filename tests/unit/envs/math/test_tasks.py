"""Rows of AIME, OlympiadBench and Polaris: what they hold, and what is wrong with them."""

import pytest

from factories import written
from teamtune.envs.math import Math, MathTasks
from teamtune.envs.math.tasks import problem_of
from teamtune.errors import ConfigError

AIME_24 = {"id": 60, "problem": "Find x.", "solution": "...", "answer": "204", "year": "2024"}
AIME_25 = {"question": "Find x.", "answer": 70}
OLYMPIAD = {"question": "Find x.", "context": None, "final_answer": ["$\\frac{1}{2}$"],
            "error": None, "is_multiple_answer": False, "answer_type": "Numerical"}  # fmt: skip
POLARIS = {"problem": "Find x.", "answer": "\\frac{1}{2}", "difficulty": "6/8"}


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        (AIME_24, "204"),
        ({"ID": "2024-I-1", "Problem": "Find x.", "Answer": 25}, "25"),
        (AIME_25, "70"),
        (OLYMPIAD, "$\\frac{1}{2}$"),
        (OLYMPIAD | {"final_answer": ["1", "2"]}, "1, 2"),
        (POLARIS, "\\frac{1}{2}"),
    ],
)
def test_rows_of_every_schema(row, answer):
    assert problem_of(row) == {"problem": "Find x.", "answer": answer}


def test_a_context_comes_before_the_question():
    row = OLYMPIAD | {"context": "Let x be 1."}
    assert problem_of(row)["problem"] == "Let x be 1.\n\nFind x."


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"answer": "5"}, "no field problem or Problem or question; the row has: answer"),
        ({"problem": "?"}, "no field final_answer or answer or Answer"),
        (AIME_24 | {"problem": " "}, "problem: got ' '"),
        (AIME_24 | {"answer": None}, "answer: got None"),
        (AIME_24 | {"answer": True}, "answer: got True"),
        (OLYMPIAD | {"final_answer": []}, r"final_answer: got \[\]"),
        (OLYMPIAD | {"final_answer": ["1", None]}, "final_answer: got"),
        (OLYMPIAD | {"error": "1e-2"}, "error: got '1e-2'"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_with_its_field(row, words):
    with pytest.raises(ValueError, match=words):
        problem_of(row)


def test_a_gold_answer_that_does_not_parse_is_refused_with_its_place(tmp_path):
    tasks = MathTasks(written(tmp_path / "x.jsonl", AIME_24, POLARIS | {"answer": "(("}))
    with pytest.raises(ConfigError, match=r"x.jsonl:2: task x-1: 'answer' is no mathematics"):
        tasks.check(Math(roles=("reasoner",)))


def test_or_it_is_left_out_and_counted(tmp_path):
    rows = AIME_24, POLARIS | {"answer": "(("}, {"problem": "?"}, POLARIS
    path = written(tmp_path / "x.jsonl", *rows)
    with pytest.raises(ConfigError, match=r"x.jsonl:3: no field final_answer"):
        MathTasks(path)
    with pytest.warns(UserWarning, match=r"2 rows are left out; the first: .*x.jsonl:2: answer"):
        tasks = MathTasks(path, skip_invalid=True)
    assert [task.id for task in tasks.tasks] == ["x-0", "x-3"]
