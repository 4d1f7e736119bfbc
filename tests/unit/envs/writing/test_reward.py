"""The joint reward of two texts, level by level, against values worked out by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamtune.envs.writing import TLDR, ArXiv
from teamtune.envs.writing.reward import (
    WEIGHTS,
    Levels,
    height,
    joint_reward,
    similarity,
    transitions,
    words,
)
from teamtune.envs.writing.vocabulary import STOP_WORDS, TRANSITIONS
from teamtune.errors import ConfigError

ONE_OF_EACH = (
    "moreover for example that is so however next indeed overall likewise although if later"
)
"""Twelve kinds of transition in 14 words."""


def tldr(first, second, **changes):
    return TLDR(**changes).joint_reward(first, second)


def numbered(count, start=0, width=4):
    """`count` different words of `width` characters, none of them a stop word or a transition."""
    return " ".join(f"{i:0{width}d}" for i in range(start, start + count))


def padded(text, characters):
    """`text` with `!` behind it, so many characters long."""
    assert len(text) <= characters
    return text + "!" * (characters - len(text))


# --- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t", []),
        ("?! ... -- '' __ “”", []),
        ("Don’t stop, don't!", ["don't", "stop", "don't"]),
        (
            "a well-known 2nd naïve Über-test",
            ["a", "well", "known", "2nd", "naïve", "über", "test"],
        ),
        ("これは日本語の文です。", []),
        ("Это русский текст", []),
        ("'quoted' (in brackets)", ["quoted", "in", "brackets"]),
        ("\ud800 word", ["word"]),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("The person also sounds sorry", {"elaboration"}),  # no "so" in person, sounds or sorry
        ("So, it rained.", {"cause and effect"}),
        ("a thousand ifs and buts, whenever he firstborn", set()),
        ("for\n example", {"example"}),
        ("HOWEVER", {"contrast"}),
        ("as a result", {"cause and effect"}),
        ("as results", set()),
        (ONE_OF_EACH, set(TRANSITIONS)),
        ("", set()),
    ],
)
def test_transitions_are_whole_words(text, kinds):
    assert transitions(text) == kinds


def test_each_phrase_belongs_to_one_of_twelve_kinds_and_is_found():
    assert len(TRANSITIONS) == 12
    phrases = [phrase for kind in TRANSITIONS.values() for phrase in kind]
    assert len(phrases) == len(set(phrases))
    for kind, listed in TRANSITIONS.items():
        assert all(kind in transitions(f"x {phrase}, y") for phrase in listed)


def test_stop_words_are_words():
    assert all(words(word) == [word] for word in STOP_WORDS)
    assert {"the", "and", "of", "don't"} <= STOP_WORDS


# --- single levels -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "given"), [(0, 0), (1, 0), (7, 0), (8, 0.5), (256, 0.5), (257, 0)]
)
def test_structure_asks_for_8_to_256_words_of_both_summaries(count, given):
    text, fitting = numbered(count), numbered(100)
    assert tldr(text, fitting)["structure"] == given
    assert tldr(fitting, text)["structure"] == given


@pytest.mark.parametrize(("count", "given"), [(127, 0), (128, 0.5), (256, 0.5), (257, 0)])
def test_structure_asks_for_128_to_256_words_of_both_parts(count, given):
    text, fitting = numbered(count), numbered(200)
    assert ArXiv().joint_reward(text, fitting)["structure"] == given
    assert ArXiv().joint_reward(fitting, text)["structure"] == given


@pytest.mark.parametrize(
    ("characters", "given"),
    [  # over 100 characters of the first text
        (100, 0),
        (110, 0),
        (111, 0.02),
        (135, 0.5),
        (159, 0.98),
        (160, 1),
        (250, 1),
        (320, 1),
        (321, 1 - 0.01 / 1.8),
        (410, 0.5),
        (500, 0),
        (501, 0),
    ],
)
def test_length_ratio_of_summaries(characters, given):
    first, second = padded(numbered(8), 100), padded(numbered(16), characters)
    reward = tldr(first, second)
    assert reward["structure"] == 0.5
    assert reward["length_ratio"] == pytest.approx(given, abs=1e-12)
    assert (reward["unique_ratio"] > 0) == (given > 0)


@pytest.mark.parametrize(
    ("characters", "given"),
    [(800, 0), (1050, 0.5), (1299, 0.998), (1300, 1), (1600, 1), (1800, 0.5), (2000, 0)],
)
def test_length_ratio_of_introductions(characters, given):
    first, second = padded(numbered(128), 1000), padded(numbered(150), characters)
    assert ArXiv().joint_reward(first, second)["length_ratio"] == pytest.approx(given, abs=1e-12)


@pytest.mark.parametrize(
    ("unique", "given"),
    [(10, 0), (13, 0), (14, 0.5 * 0.1 / 0.7), (19, 0.5 * 0.6 / 0.7), (20, 0.5), (60, 0.5)],
)
def test_unique_ratio_of_summaries(unique, given):
    first = padded(numbered(10), 100)  # ten different words
    second = padded(f"{numbered(unique)}", 320)
    reward = tldr(first, second)
    assert reward["length_ratio"] == 1
    assert reward["unique_ratio"] == pytest.approx(given, abs=1e-12)


@pytest.mark.parametrize(
    ("unique", "given"), [(50, 0), (60, 0.25), (70, 0.5), (130, 0.5), (150, 0.25), (170, 0)]
)
def test_unique_ratio_of_introductions(unique, given):
    first = padded(f"{numbered(100)} {numbered(60)}", 1000)  # 160 words, 100 different ones
    again = f" {numbered(50)}" * 3
    second = padded(f"{numbered(unique)}{again}"[: 5 * 200 - 1], 1400)
    reward = ArXiv().joint_reward(first, second)
    assert reward["length_ratio"] == 1
    assert reward["unique_ratio"] == pytest.approx(given, abs=1e-12)


def test_stop_words_count_for_the_unique_ratio_but_not_for_style():
    first = "the of and to in it on at"  # eight words, all of them stop words
    second = padded(f"{first} {numbered(8)}", 3 * len(first))
    reward = tldr(first, second)
    assert (reward["unique_ratio"], reward["style"], reward["coherence"]) == (0.5, 0, 0)


@pytest.mark.parametrize(
    ("shared", "given"),
    [  # 100 words in the second text, 10 in the first: similarity s / (110 - s)
        (0, 0),
        (1, 0.6 * (1 / 109) / 0.03),
        (3, 0.6 * (3 / 107) / 0.03),
        (4, 0.6),
        (10, 0.6),
    ],
)
def test_style_of_summaries_is_full_from_a_similarity_of_3_percent(shared, given):
    first = padded(numbered(10), 200)
    second = padded(numbered(100, start=10 - shared), 600)
    assert tldr(first, second)["style"] == pytest.approx(given, abs=1e-12)


@pytest.mark.parametrize(("shared", "given"), [(23, 0.6 * (23 / 233) / 0.23), (48, 0.6)])
def test_style_of_introductions_is_full_from_a_similarity_of_23_percent(shared, given):
    first = padded(numbered(128), 1000)
    second = padded(numbered(128, start=128 - shared), 1400)
    reward = ArXiv().joint_reward(first, second)
    assert reward["style"] == pytest.approx(given, abs=1e-12)  # 48 / 208 = 0.2307...


@pytest.mark.parametrize(
    ("phrases", "kinds"),
    [
        ("", 0),
        ("however", 1),
        ("however but yet", 1),
        ("however moreover", 2),
        (ONE_OF_EACH, 12),
        ("person", 0),
    ],
)
def test_coherence_grows_with_the_logarithm_of_the_kinds(phrases, kinds):
    first = padded(numbered(10), 200)
    second = padded(f"{numbered(40)} {phrases}", 400)
    reward = tldr(first, second)
    assert reward["style"] > 0
    assert reward["coherence"] == pytest.approx(0.4 * math.log(1 + kinds) / math.log(13))


def test_transitions_of_the_concise_summary_do_not_count_those_of_either_introduction_do():
    first, second = f"however {numbered(9)}", numbered(40)
    assert tldr(first, padded(second, 4 * len(first)))["coherence"] == 0
    first, second = f"however {numbered(130)}", f"moreover {numbered(130)}"
    reward = ArXiv().joint_reward(first, padded(second, round(1.4 * len(first))))
    assert reward["coherence"] == pytest.approx(0.4 * math.log(3) / math.log(13))


# --- levels together -----------------------------------------------------------------------------


def best_summaries():
    first = padded(numbered(12), 60)
    second = f"{ONE_OF_EACH} {numbered(12)}"
    return first, second


def best_introductions():
    first = numbered(130)
    second = padded(f"{numbered(130)} {ONE_OF_EACH}", round(1.5 * len(first)))
    return first, second


@pytest.mark.parametrize(
    ("environment", "pair"), [(TLDR(), best_summaries()), (ArXiv(), best_introductions())]
)
def test_the_maximum_is_reached(environment, pair):
    reward = environment.joint_reward(*pair)
    assert reward == {**WEIGHTS, "total": 3.0}
    assert environment.maximum == environment.reward_range[1] == 3.0


def test_a_text_a_person_would_write():
    first = "My sister owes me seven hundred and I want to ask for it without a quarrel."
    second = (
        "Since autumn my sister has borrowed small sums nearly every month, and altogether she "
        "owes me more than seven hundred. However, our mother says that families should not count."
    )
    # 16 and 29 words, 75 and 175 characters: ratio 2.3333. All words differ.
    assert [len(words(t)) for t in (first, second)] == [16, 29]
    assert [len(t) for t in (first, second)] == [75, 175]
    assert [len(set(words(t))) for t in (first, second)] == [16, 29]
    # Content: sister owes seven hundred want ask without quarrel | since autumn sister borrowed
    # small sums nearly every month altogether owes seven hundred however mother says families count
    assert similarity(
        set(words(first)) - STOP_WORDS, set(words(second)) - STOP_WORDS
    ) == pytest.approx(4 / 22)
    reward = tldr(first, second)  # since, altogether, however: three kinds
    assert reward["unique_ratio"] == pytest.approx(0.5 * (29 / 16 - 1.3) / 0.7)
    assert reward["coherence"] == pytest.approx(0.4 * math.log(4) / math.log(13))
    assert reward["total"] == pytest.approx(
        0.5 + 1 + 0.5 * (29 / 16 - 1.3) / 0.7 + 0.6 + 0.4 * math.log(4) / math.log(13)
    )


@pytest.mark.parametrize(
    ("first", "second", "given"),
    [
        (numbered(7), best_summaries()[1], 0),
        (best_summaries()[0], best_summaries()[0], 1),
        (best_summaries()[0], padded(numbered(12), 130), 2),
        (best_summaries()[0], padded(f"{numbered(13, 50)} {ONE_OF_EACH}", 190), 3),
    ],
)
def test_a_level_that_gives_nothing_stops_the_rest(first, second, given):
    reward = tldr(first, second)
    values = list(reward.values())[:-1]
    assert list(reward) == [*WEIGHTS, "total"]
    assert all(value > 0 for value in values[:given])
    assert values[given:] == [0.0] * (5 - given)
    assert reward["total"] == sum(values)


BROKEN = [
    "",
    " \n",
    "?!" * 200,
    "\x00" * 50,
    "\ud800" * 20,
    "日本語の文章です。" * 20,
    "Это текст " * 20,
]


@pytest.mark.parametrize("environment", [TLDR(), ArXiv()])
@pytest.mark.parametrize("broken", BROKEN)
def test_texts_without_words_get_the_lowest_level(environment, broken):
    for pair in ((broken, broken), (broken, numbered(150)), (numbered(150), broken)):
        assert environment.joint_reward(*pair) == {**dict.fromkeys(WEIGHTS, 0.0), "total": 0.0}


texts = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.sampled_from([*ONE_OF_EACH.split(), *(f"w{i}" for i in range(30)), "the", "of", "é!"]),
        max_size=300,
    ).map(" ".join),
)


@settings(max_examples=150, deadline=None)
@given(texts, texts)
def test_rewards_are_finite_within_their_weights_and_gated(first, second):
    for environment in (TLDR(), ArXiv(min_words=8)):
        reward = environment.joint_reward(first, second)
        values = [reward[name] for name in WEIGHTS]
        assert all(0 <= v <= w + 1e-12 for v, w in zip(values, WEIGHTS.values()))
        assert reward["total"] == pytest.approx(sum(values)) and reward["total"] <= 3
        assert values == sorted(values, key=lambda v: v == 0)  # once 0, always 0


@settings(max_examples=100, deadline=None)
@given(st.integers(8, 40), st.integers(0, 60), st.sets(st.sampled_from(ONE_OF_EACH.split())))
def test_more_kinds_of_transition_never_cost_coherence(count, extra, phrases):
    first = padded(numbered(count), 300)
    second = numbered(3 * count + extra)
    few = " ".join([second, *sorted(phrases)[1:]])
    many = " ".join([second, *sorted(phrases)])
    few, many = (padded(text, 1600)[:960] if len(text) < 960 else text for text in (few, many))
    one, two = tldr(first, few), tldr(first, many)
    if one["style"] and two["style"]:
        assert one["coherence"] <= two["coherence"]


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_ratio_nearer_to_the_band_never_earns_less(one, two):
    band = (1.1, 1.6, 3.2, 5.0)

    def distance(ratio):
        return max(1.6 - ratio, 0) + max(ratio - 3.2, 0)

    if (one < 1.6) == (two < 1.6) and distance(one) <= distance(two):
        assert height(one, band) >= height(two, band)
    assert 0 <= height(one, band) <= 1


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_similarity_is_symmetric_and_full_for_equal_sets_only(first, second):
    value = similarity(first, second)
    assert value == similarity(second, first) and 0 <= value <= 1
    assert (value == 1) == (first == second and bool(first))


def test_style_is_symmetric_in_the_words_and_case_blind():
    first, second = "Apple Pear plum fig nut oat rye bun", "APPLE pear " + numbered(20)
    assert tldr(first, second)["style"] == tldr(first.upper(), second.lower())["style"] > 0


# --- configuration -----------------------------------------------------------------------------


def test_thresholds_and_weights_are_arguments():
    assert tldr(numbered(3), numbered(8), min_words=3, weights={"structure": 2})["structure"] == 2
    only = TLDR(weights={"length_ratio": 0, "unique_ratio": 0, "style": 0, "coherence": 0})
    assert only.maximum == 0.5
    reward = only.joint_reward(*best_summaries())
    assert (reward["structure"], reward["total"]) == (0.5, 0.5)
    without_length = TLDR(weights={"length_ratio": 0}).joint_reward(*best_summaries())
    assert without_length["total"] == 2.0  # a level without weight still lets others pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_words": 300}, "min_words: got 300, allowed: max_words, 256, or less"),
        ({"length_ratio": (2.0, 1.0, 3.0, 4.0)}, "length_ratio: got"),
        ({"length_ratio": (1.0, 1.0, 3.0, 4.0)}, "length_ratio: got"),
        ({"unique_ratio": (1.0, math.inf, None, None)}, "unique_ratio: got"),
        ({"unique_ratio": (1.0, 2.0, 3.0, 3.0)}, "unique_ratio: got"),
        ({"unique_ratio": (1.0, 2.0, math.nan, 3.0)}, "unique_ratio: got"),
        ({"unique_ratio": (1.0, 2.0, None, 3.0)}, "unique_ratio: got"),
        ({"unique_ratio": (1.0, 2.0, 3.0, None)}, "unique_ratio: got"),
        ({"unique_ratio": (-1.0, 2.0, 3.0, 4.0)}, "unique_ratio: got"),
        ({"weights": {"styl": 1.0}}, "unknown level .did you mean 'style'"),
        ({"weights": dict.fromkeys(WEIGHTS, 0)}, "weights: got 0 for every level"),
        ({"prompts": "/nowhere"}, "no prompt for role 'concise'"),
    ],
)
def test_values_out_of_range_are_refused_in_one_line(changes, message):
    with pytest.raises(ConfigError, match=message) as error:
        TLDR(**changes)
    assert "\n" not in str(error.value)


def test_the_pure_function_and_the_method_are_one():
    levels = Levels(8, 256, (1.1, 1.6, 3.2, 5.0), (1.3, 2.0, None, None), 0.03, "second")
    pair = best_summaries()
    assert joint_reward(*pair, levels) == TLDR().joint_reward(*pair)
