"""A template's own `---` parts system from user; a text that is put in never does."""

import pytest
from jinja2.exceptions import SecurityError

from teamtune.envs.prompts import Prompts


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plain.jinja").write_text("{{ text }}\n")
    (tmp_path / "parted.jinja").write_text("You are {{ role }}.\n---\n{{ text }}\n")
    return tmp_path


def test_what_stands_before_the_line_is_the_system_message(folder):
    assert Prompts(folder, ("parted",)).render("parted", {"text": "Go."}) == [
        {"role": "system", "content": "You are parted."},
        {"role": "user", "content": "Go."},
    ]


def test_a_line_in_a_text_parts_nothing(folder):
    text = "above\n---\nbelow"
    prompts = Prompts(folder, ("plain", "parted"))
    assert prompts.render("plain", {"text": text}) == [{"role": "user", "content": text}]
    assert prompts.render("parted", {"text": text})[1] == {"role": "user", "content": text}


@pytest.mark.parametrize("reach", ["text.__class__.__mro__", "words.append('more')"])
def test_a_template_reads_only_what_it_is_given(folder, reach):
    (folder / "greedy.jinja").write_text("{{ " + reach + " }}")
    with pytest.raises(SecurityError):
        Prompts(folder, ("greedy",)).render("greedy", {"text": "Go.", "words": []})
