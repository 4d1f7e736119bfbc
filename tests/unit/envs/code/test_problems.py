"""Rows of APPS, CodeContests and LiveCodeBench: what they hold, and what is wrong with them."""

import base64
import json
import os
import pickle
import zlib

import pytest

from factories import written
from teamtune.envs.code import Code, CodeTasks
from teamtune.envs.code.problem import Problem, Test, data_of, problem_of
from teamtune.envs.code.running import same_json, same_text
from teamtune.errors import ConfigError
from teamtune.tasks import Task

APPS = {
    "problem_id": 0,
    "question": "Add.",
    "solutions": json.dumps(["print 1", "print(sum(map(int, input().split())))"]),
    "input_output": json.dumps({"inputs": ["1 2\n", ["3 4", "5"]], "outputs": ["3\n", ["7"]]}),
    "starter_code": "",
}
CALLED = APPS | {
    "input_output": json.dumps({"fn_name": "f", "inputs": [[1, [2]], ["a"]], "outputs": [[3], 4]}),
    "starter_code": "def f(a, b):\n\t",
}
CONTESTS = {
    "name": "1_A",
    "description": "Add.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": [], "output": []},
    "generated_tests": [{"input": "3 4\n", "output": "7\n"}],
    "solutions": {"language": [2, 1, 3], "solution": ["int main() {}", "print 1", "print(3)"]},
}
PRIVATE = [{"input": "3 4\n", "output": "7\n", "testtype": "stdin"}]
LIVE = {
    "question_title": "Sum",
    "question_content": "Add.",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
    "private_test_cases": json.dumps(PRIVATE),
    "metadata": "{}",
}
TWO = (Test("1 2\n", ("3\n",)), Test("3 4\n", ("7\n",)))


def packed(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/evil",)


def test_an_apps_row_of_a_program_that_reads():
    program = "print(sum(map(int, input().split())))"
    tests = (Test("1 2\n", ("3\n",)), Test("3 4\n5", ("7",)))
    assert problem_of(APPS) == Problem("Add.", tests, reference=program)


def test_an_apps_row_of_a_function_takes_a_wrapped_result_too():
    tests = (Test("1\n[2]", ("[3]", "3")), Test('"a"', ("4",)))
    problem = problem_of(CALLED)
    assert (problem.tests, problem.function) == (tests, "f")


def test_a_row_of_codecontests_has_all_its_tests_and_the_first_solution_in_python_3():
    assert problem_of(CONTESTS) == Problem("Add.", TWO, reference="print(3)")


def test_a_row_of_livecodebench_plain_and_packed():
    row = LIVE | {"private_test_cases": packed(json.dumps(PRIVATE))}
    assert problem_of(LIVE) == problem_of(row) == Problem("Add.", TWO)


def test_packed_tests_run_nothing():
    with pytest.raises(ValueError, match=r"it holds a \w+\.system"):
        problem_of(LIVE | {"private_test_cases": packed(Evil())})
    assert not os.path.exists("/tmp/evil")


@pytest.mark.parametrize("row", [APPS, CALLED, CONTESTS, LIVE])
def test_our_own_schema_holds_all_of_it(row):
    assert problem_of(data_of(problem_of(row))) == problem_of(row)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "Add."}, "no tests in a known schema; the row has question"),
        (APPS | {"input_output": "{"}, "input_output: no JSON"),
        (APPS | {"input_output": ""}, "input_output: no JSON"),
        (APPS | {"input_output": "[]"}, "input_output: got list, expected dict"),
        (APPS | {"input_output": '{"inputs": []}'}, "input_output: no field 'outputs'"),
        (APPS | {"input_output": '{"inputs": ["1"], "outputs": []}'}, "got 1 inputs and 0 outputs"),
        (APPS | {"input_output": '{"inputs": [], "outputs": []}'}, "tests: got none"),
        (APPS | {"input_output": '{"inputs": [1], "outputs": [2]}'}, "got int, expected str"),
        (APPS | {"question": " "}, "question: got an empty text"),
        (APPS | {"question": 5}, "question: got int, expected str"),
        (APPS | {"solutions": "print(1)"}, "solutions: no JSON"),
        (CALLED | {"input_output": json.dumps({"fn_name": "a b", "inputs": [[1]],
                                               "outputs": [1]})}, "function: got 'a b'"),
        (CONTESTS | {"private_tests": {"input": ["1"], "output": []}}, "private_tests: its col"),
        (CONTESTS | {"private_tests": {"input": ["1"]}}, "private_tests: no field 'output'"),
        (LIVE | {"private_test_cases": "!!"}, "private_test_cases: neither JSON nor packed"),
        (LIVE | {"private_test_cases": packed([1])}, "private_test_cases: neither"),
        (LIVE | {"public_test_cases": "[1]"}, r"public_test_cases\[0\]: got int, expected dict"),
        (LIVE | {"public_test_cases": json.dumps([{"input": "1", "output": "2",
                                                   "testtype": "functional"}])}, "several kinds"),
        ({"question": "?", "tests": [{"input": "1"}]}, r"tests\[0\]: no field 'output'"),
        ({"question": "?", "tests": [{"input": "1", "output": []}]}, r"tests\[0\].output: got an"),
        ({"question": "?", "tests": [{"input": "1", "output": 1}]}, r"tests\[0\].output: got int"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_said_with_its_field(row, words):
    with pytest.raises(ValueError, match=words):
        problem_of(row)


def test_tasks_of_several_schemas_and_what_they_lack(tmp_path):
    path = written(tmp_path / "mixed.jsonl", APPS, CONTESTS, LIVE)
    with pytest.warns(UserWarning, match="1 of 3 problems have no reference.*mixed.jsonl:3"):
        tasks = CodeTasks(path)
    assert [task.id for task in tasks.tasks] == ["mixed-0", "mixed-1", "mixed-2"]
    tasks.check(Code())


def test_a_bad_row_is_refused_with_its_place_or_left_out_and_counted(tmp_path):
    path = written(tmp_path / "x.jsonl", APPS, APPS | {"input_output": "{"})
    with pytest.raises(ConfigError, match=r"x.jsonl:2: input_output: no JSON"):
        CodeTasks(path)
    with pytest.warns(UserWarning, match=r"1 rows hold no problem .*x.jsonl:2: input_output"):
        assert CodeTasks(path, skip_invalid=True).count == 1
    path = written(tmp_path / "none.jsonl", {"a": 1})
    with pytest.raises(ConfigError, match=r"no row holds a problem; the first: .*none.jsonl:1"):
        CodeTasks(path, skip_invalid=True)


def test_a_part_of_the_tests_can_be_taken(tmp_path):
    (task,) = CodeTasks(written(tmp_path / "x.jsonl", APPS), max_tests=1).tasks
    assert task == Task("x-0", data_of(problem_of(APPS)) | {"tests": [
        {"input": "1 2\n", "output": ["3\n"]}]})  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "right", "same"),
    [
        ("3", "3\n", True),
        ("1  2 \n3", "1 2\n3\n", True),
        ("0.5", "0.50", True),
        ("0.3333333", "0.33333333", True),
        ("0.333", "0.33333333", False),
        ("1.0", "1", False),
        ("10000000000000001", "10000000000000000", False),
        ("1 2", "1 2 3", False),
        ("", "3", False),
        ("nan", "0.5", False),
        ("YES", "Yes", False),
    ],
)
def test_outputs_are_the_same_up_to_white_space_and_rounding(printed, right, same):
    assert same_text(printed, right) is same


@pytest.mark.parametrize(
    ("returned", "right", "same"),
    [
        ("[1, 2]", "[1,2]", True),
        ("1.0000000001", "1", True),
        ("[0.5, [1]]", "[0.5000000001, [1.0]]", True),
        ("true", "1", False),
        ("1", "2", False),
        ('{"a": 1.0}', '{"a": 1}', True),
        ('{"a": 1}', '{"b": 1}', False),
        ("[1]", "[1, 2]", False),
        ("", "1", False),
        ("[" * 100000, "1", False),
        ("NaN", "1.0", False),
        ("null", "null", True),
    ],
)
def test_values_are_the_same_up_to_rounding(returned, right, same):
    assert same_json(returned, right) is same
