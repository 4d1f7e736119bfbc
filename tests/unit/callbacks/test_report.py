"""The closing table and the learning curve."""

from types import SimpleNamespace

from factories import candidate, group, rollouts_of
from teamtune.callbacks.report import Report, Row, draw_curve, table

ROWS = [
    Row(0, "warm start", 0.181, 0.158, 0.206, 1000, 0, 61.4),
    Row(170, "ATGRPO", 0.979, 0.968, 0.986, 1000, 1_234_567, 271.0),
]


def test_the_table_says_what_was_reached_with_what():
    head, rule, first, last = table(ROWS).splitlines()
    assert len({len(line) for line in (head, rule, first, last)}) == 1
    assert "warm start (step 0)" in first and "18.1 %" in first and "15.8–20.6 %" in first
    assert "97.9 %" in last and "1,234,567" in last and "4:31 min" in last and "1,000" in last


def test_joint_rewards_and_costs_have_columns_where_rewards_have_levels():
    rows = [Row(0, "untrained", 0.1, 0.0, 0.3, 24, 0, 5.0, 0.47, 181.3, 0.25), *ROWS]
    head, _, first, *others = table(rows).splitlines()
    assert "joint reward" in head and "tokens per task" in head and "seconds per task" in head
    assert "47.0 %" in first and "181" in first and "0.25" in first
    assert len({len(line) for line in (head, first, *others)}) == 1
    assert "joint reward" not in table(ROWS)


def test_shares_have_a_column_each_also_where_an_earlier_row_lacks_them():
    more = Row(5, "MAGRPO", 0.1, 0.0, 0.3, 6, 9, 5.0, shares={"pass_at_2": 0.25, "test_ratio": 0.5})
    head, _, old, new = table([ROWS[0], more]).splitlines()
    assert [cell.strip() for cell in head.split("|")[-3:-1]] == ["pass@2", "test ratio"]
    assert [cell.strip() for cell in new.split("|")[-3:-1]] == ["25.0 %", "50.0 %"]
    assert [cell.strip() for cell in old.split("|")[-3:-1]] == ["", ""]


def test_the_curve_is_a_png(tmp_path):
    draw_curve(ROWS, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_rows_survive_a_resume():
    report, other = Report(), Report()
    report.rows, report.trained_tokens = ROWS, 7
    other.load_state_dict(report.state_dict())
    assert other.rows == ROWS and other.trained_tokens == 7


def test_trained_tokens_are_those_of_answers_with_an_advantage():
    """Answers of 2, 3 and 1 tokens, of which the second has none."""
    report = Report()
    answers = [candidate([5, 6], 1.0), candidate([5, 6, 7], 0.0), candidate([5], -1.0)]
    report.team = SimpleNamespace(rollouts=rollouts_of([group([3], answers)]))
    for _ in range(2):
        report.on_train_batch_end(None, None)
    assert report.trained_tokens == 2 * (2 + 1)
