"""The page of rollouts: what it holds, that answers stay data, and that it cannot grow for ever."""

import json
import math
import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from factories import candidate, group, rollouts_of
from games import Game, play
from teamtune.experience.page import TEMPLATE, Page
from teamtune.experience.plain import plain
from teamtune.rollout import JointSampler

EVIL = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> \ud800 \u2028 \x00"
MARKUP = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(")
FETCHING = ("http:", "https:", "url(", "@import", "fetch(", " src=")


class Elements(HTMLParser):
    """The page's elements, as a browser parses them, and the text of each script."""

    def __init__(self, path: Path):
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += data

    @property
    def samples(self) -> list[Any]:
        data, _ = self.scripts
        return json.loads(data)


def rollout(*answers: str, task: str = "task-0") -> dict[str, Any]:
    """Of one turn, with a board that is drawn alike before and after it."""
    said = group([1], [candidate([3], 0.5) for _ in answers], task=task)
    said.prompt = "where to?"
    for made, text in zip(said.candidates, answers):
        object.__setattr__(made.completion, "text", text)
    return plain(rollouts_of([said])[0], lambda state: "S.G")


def test_a_page_holds_what_was_sampled(tmp_path):
    page = Page()
    page.add(1, [rollout("left")])
    page.add(51, [rollout("right", task="task-1"), rollout("left", task="task-1")])
    page.write(tmp_path / "rollouts.html")
    first, second = Elements(tmp_path / "rollouts.html").samples
    assert (first["step"], first["task"], len(first["rollouts"])) == (1, "task-0", 1)
    assert (second["step"], second["task"], len(second["rollouts"])) == (51, "task-1", 2)
    asked = second["rollouts"][0]["turn"]["groups"][0]
    assert second["texts"][asked["prompt"]] == "where to?"
    assert second["texts"][asked["candidates"][0]["text"]] == "right"
    assert asked["candidates"][0]["advantage"] == 0.5
    assert second["texts"][second["rollouts"][0]["turn"]["joints"][0]["after"]] == "S.G"


def test_the_whole_tree_is_in_it(tmp_path):
    page = Page()
    played = play(Game(lambda said: len(said), turns=2), JointSampler(2, max_turns=2))
    page.add(1, [plain(played, str)])
    page.write(tmp_path / "rollouts.html")
    (sample,) = Elements(tmp_path / "rollouts.html").samples
    joints = sample["rollouts"][0]["turn"]["joints"]
    assert [joint["picks"] for joint in joints] == [[0, 0], [1, 1]]
    below = [joint["opens"]["joints"] for joint in joints]
    assert [[joint["reward"] for joint in turn] for turn in below] == [[2, 2], [2, 2]]
    assert sample["texts"][below[1][0]["after"]] == "(('1', '1'), ('0', '0'))"


def test_no_answer_is_markup(tmp_path):
    Page().write(tmp_path / "empty.html")
    page = Page()
    page.add(1, [rollout(EVIL, "SAMPLES\n", task=EVIL)])
    page.write(tmp_path / "rollouts.html")
    found = Elements(tmp_path / "rollouts.html")
    assert found.tags == Elements(tmp_path / "empty.html").tags
    (sample,) = found.samples
    assert sample["task"] == EVIL and {EVIL, "SAMPLES\n"} < set(sample["texts"])


def test_the_page_makes_markup_of_nothing_and_fetches_nothing():
    source = TEMPLATE.read_text(encoding="utf-8")
    assert "default-src 'none'" in source
    for way in MARKUP + FETCHING:
        assert way not in source


def test_equal_texts_are_stored_once():
    page = Page()
    page.add(1, [rollout("left", "left", "right"), rollout("left")])
    assert page.samples[0].count("left") == page.samples[0].count("where to?") == 1
    assert page.samples[0].count("S.G") == 1


def test_the_newest_samples_are_kept():
    page = Page(count=3)
    for step in range(1, 6):
        page.add(step, [rollout("left")])
    assert [json.loads(sample)["step"] for sample in page.samples] == [3, 4, 5]


def test_long_samples_make_room_for_themselves_but_the_newest_is_always_there():
    page = Page(size=10_000)
    for step in range(1, 5):
        page.add(step, [rollout("x" * 4000)])
    assert [json.loads(sample)["step"] for sample in page.samples] == [3, 4]
    page.add(5, [rollout("x" * 20_000)])
    assert [json.loads(sample)["step"] for sample in page.samples] == [5]


def test_numbers_that_json_lacks_are_told_in_words():
    shown = rollout("left") | {"return": math.nan, "levels": {"text": -math.inf, "style": 1 / 3}}
    page = Page()
    page.add(1, [shown])
    (packed,) = json.loads(page.samples[0], parse_constant=pytest.fail)["rollouts"]
    assert packed["return"] == "nan"
    assert packed["levels"] == {"text": "-inf", "style": 0.333333}


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "rollouts.html"
    Page().write(path)
    before = path.read_bytes()

    def refuse(*paths: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    page = Page()
    page.add(1, [rollout("left")])
    with pytest.raises(OSError, match="disk full"):
        page.write(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
