"""What a model cannot read or say is refused before a token is sampled."""

import asyncio

import pytest

from games import Game
from teamtune.callbacks.vocabulary import check_vocabulary
from teamtune.errors import ConfigError
from teamtune.inference import CharChat, Sampling, ScriptedEngine
from teamtune.tasks import Task


class Words(CharChat):
    """Knows the words it was given."""

    def __init__(self, *known):
        self.known = known

    def unknown_words(self, text):
        return [word for word in text.split() if word not in self.known]


class Echo(Game):
    """Prompts are `<agent>/`, answers the agent's samples."""

    samples = ("yes", "no no")

    def sample_actions(self, state, agent):
        return list(self.samples)


def check(game, known, max_tokens=10):
    engine = ScriptedEngine(lambda prompt, seed: "")
    engine.chat = Words(*known)
    with asyncio.Runner() as runner:
        check_vocabulary(
            game, [Task("t")], {"a": engine}, {"left": "a"}, Sampling(max_tokens=max_tokens), runner
        )


def test_a_word_of_a_prompt_that_nobody_could_read_is_named():
    with pytest.raises(ConfigError, match=r"model.policies.a: .* does not know 'left/' of the"):
        check(Echo(lambda s: 0.0, agents=("left",)), ["yes"])


def test_one_answer_that_can_be_said_is_enough():
    check(Echo(lambda s: 0.0, agents=("left",)), ["left/", "no"])
    with pytest.raises(ConfigError, match="does not know 'yes' of its answers"):
        check(Echo(lambda s: 0.0, agents=("left",)), ["left/", "maybe"])


def test_the_shortest_answer_has_to_fit():
    game = Echo(lambda s: 0.0, agents=("left",))
    check(game, ["left/", "yes", "no"], max_tokens=4)  # y, e, s and the end
    with pytest.raises(ConfigError, match=r"max_tokens: got 3, allowed: 4 or more"):
        check(game, ["left/", "yes", "no"], max_tokens=3)


def test_a_game_that_nobody_plays_is_refused():
    with pytest.raises(ConfigError, match="nobody acts in task t"):
        check(Echo(lambda s: 0.0, turns=0, agents=("left",)), ["left/"])
