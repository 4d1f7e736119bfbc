"""An agent that nothing trains is named, once, after ten steps in a row."""

from teamtune.training.silence import PATIENCE, Silence


def test_an_agent_is_named_when_it_has_been_silent_for_ten_steps():
    silence = Silence()
    told = [silence.observe({"scout": False, "actor": True}) for _ in range(2 * PATIENCE)]
    assert [len(t) for t in told] == [0] * 9 + [1] + [0] * 10
    assert "'scout'" in told[9][0] and "10 steps" in told[9][0]


def test_one_step_with_credit_starts_the_count_anew():
    silence = Silence()
    heard = [False] * 9 + [True] + [False] * 9
    assert not any(silence.observe({"scout": h}) for h in heard)
    assert silence.observe({"scout": False})
