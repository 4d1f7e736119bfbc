"""Means, intervals and crossings of a study, worked out by hand, and the files they are in."""

import json

import pytest
from experiments import curves, plot, results
from experiments.design import Row, Study

CURVE = [(0.0, 0.2), (100.0, 0.6), (300.0, 1.0)]


def evaluation(step: int, success: float, tokens: int, seconds: float) -> dict:
    return {"step": step, "success": success, "tasks": 100, "tokens": tokens, "seconds": seconds}


def run(*evaluations: tuple) -> dict:
    return {"starts": [], "evaluations": [evaluation(*e) for e in evaluations]}


FOUND = {
    "question": "?",
    "rows": {
        "start": {"0": run((0, 0.2, 0, 60.0)), "1": run((0, 0.2, 0, 60.0))},
        "team": {
            "0": run((0, 0.2, 0, 0.0), (9, 0.6, 100, 60.0), (18, 0.8, 200, 120.0)),
            "1": run((0, 0.2, 0, 0.0), (9, 0.3, 150, 60.0), (18, 0.4, 250, 240.0)),
        },
    },
}


@pytest.fixture
def study(tmp_path, monkeypatch) -> Study:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp/results.json").write_text(json.dumps(FOUND))
    rows = {"start": Row("untrained", train=False), "team": Row("team"), "later": Row("later")}
    return Study("?", rows, [0, 1], threshold=0.5, folder=tmp_path / "exp")


def test_the_interval_over_seeds_is_students():
    """Of 1, 2, 3: deviation 1, so 2 +- 4.303 / sqrt(3); of 0.4, 0.8: 0.6 +- 12.706 * 0.2."""
    assert curves.seed_interval([1.0, 2.0, 3.0]) == pytest.approx((-0.48414, 4.48414), abs=1e-5)
    assert curves.seed_interval([0.4, 0.8]) == pytest.approx((-1.94124, 3.14124), abs=1e-5)
    assert curves.seed_interval([0.4]) is None


def test_between_evaluations_a_curve_is_a_line():
    assert curves.value_at(CURVE, 50) == pytest.approx(0.4)
    assert curves.value_at(CURVE, 250) == pytest.approx(0.9)
    assert curves.value_at(CURVE, 300) == 1.0
    assert curves.tokens_to(CURVE, 0.7) == pytest.approx(150)
    assert curves.tokens_to(CURVE, 0.2) == 0.0
    assert curves.tokens_to(CURVE, 1.1) is None


def test_the_table_compares_rows_at_equal_tokens(study):
    """Both have 200: seed 0 has 0.8 there, seed 1 half-way between 0.3 and 0.4.

    Seed 0 reaches 0.5 three quarters of the way to 100. Wilson for 60 of 100: 50.2 to 69.1 %.
    """
    rows = list(results.lines(study, results.gather(study)).values())
    head, _, start, team, _, tokens = results.table(study, rows).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, start, team)]
    assert cells[0][5:7] == ["at 200 tokens", "tokens to 50.0 %"]
    assert cells[1] == ["untrained", "2", "20.0 %", "20.0–20.0 %", "13.3–28.9 %", "", "", "", "1.0"]
    assert cells[2][:5] == ["team", "2", "60.0 %", "-194.1–314.1 %", "50.2–69.1 %"]
    assert cells[2][5:] == ["57.5 %", "75 (1 of 2)", "225", "3.0"]
    assert tokens == "Tokens that the runs of trained rows generated: 200 to 250."


def test_results_of_runs_that_are_not_here_are_kept_and_rows_that_are_gone_are_not(study):
    study.rows.pop("start")
    assert results.gather(study)["rows"] == {"team": FOUND["rows"]["team"]}
    assert json.loads((study.folder / "results.json").read_text())["rows"].keys() == {"team"}


def test_the_plot_is_a_png(study):
    path = plot.draw(study, list(results.lines(study, FOUND).values()))
    assert path.read_bytes().startswith(b"\x89PNG")
