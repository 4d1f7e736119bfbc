"""Whatever stands where a configuration holds something else, the answer is one line with its key.

The places come from the parser itself: every argument of every section, and of every class that the
small configuration uses.
"""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonargparse import ArgumentError

from command_line import small_config, write_team
from teamtune.command import schema
from teamtune.command.arguments import Arguments
from teamtune.command.cli import one_line
from teamtune.command.objects import instantiate
from teamtune.command.team_cli import TeamCLI
from teamtune.command.trainer import check_numbers
from teamtune.errors import ConfigError

Key = tuple[str, ...]
NUMBERS = [0, -1, 2**40, 10**30, 0.5, -1e-9, 1e300, math.inf, math.nan]
TEXTS = ["", " ", "null", "x", "12", "os.getcwd", "torch.nn.Linear", "no.such.Class", "{", "a: b"]
OBJECTS: list[Any] = [
    {"class_path": None},
    {"class_path": 3},
    {"class_path": "teamtune"},
    {"class_path": "torch.optim.LBFGS", "init_args": None},
    {"class_path": "lightning.pytorch.callbacks.EarlyStopping"},
    {"class_path": "teamtune.envs.PlanPath", "init_args": []},
    {"class_path": "teamtune.envs.PlanPath", "dict_kwargs": 3},
    {"init_args": {"x": 1}},
    {"x": {"y": [None]}},
]
SIMPLE = [None, True, False, [], {}, [None], [[]], *NUMBERS, *TEXTS]
WRONG = st.sampled_from([*SIMPLE, *OBJECTS, *([value] for value in OBJECTS)])


class Prepared(TeamCLI):
    """The parsers of the command, made once."""

    def parse_arguments(self, parser: Any, args: Any) -> None:
        raise StopIteration

    def build(self, values: Any) -> None:
        """As the command does, up to the objects of the configuration."""
        self.arguments = Arguments(["fit", "--config", json.dumps(values)], "fit", values)
        TeamCLI.parse_arguments(self, self.parser, self.arguments.args)
        check_numbers(self.config.fit.trainer)
        instantiate(self.parser, self.config, "fit")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    folder = tmp_path_factory.mktemp("team")
    write_team(folder)
    made = Prepared.__new__(Prepared)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StopIteration):
        patch.chdir(folder)
        made.__init__(Arguments(["fit"], "fit"))  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield made


def keys_of(parser: Any, values: Any, at: Key = ()) -> Iterator[Key]:
    """Every argument that `parser` knows, and those of the classes that `values` name."""
    for action in parser._actions if parser else ():
        if schema._is_argument(action):
            yield (*at, *action.dest.split("."))
    for name, value in values.items() if isinstance(values, dict) else ():
        if not isinstance(value, dict):
            continue
        if "class_path" in value:
            yield from ((*at, name, part) for part in schema.SPEC)
            cls = schema.resolve_name(value["class_path"])
            skip = 1 if "optim" in value["class_path"] else 0
            inner, arguments = schema._parser_of(cls, skip), value.get("init_args", {})
            yield from keys_of(inner, arguments, (*at, name, "init_args"))
        else:
            yield from keys_of(None, value, (*at, name))


def put(values: Any, key: Key, wrong: Any) -> Any:
    """`values` with `wrong` at `key`, mappings made on the way."""
    values = copy.deepcopy(values)
    place = values
    for name in key[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            return values
    place[key[-1]] = wrong
    return values


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.slow
def test_a_malformed_configuration_is_one_line_that_names_its_section(
    command: Prepared, data: st.DataObject
):
    keys = sorted(set(keys_of(command._subcommand_parsers["fit"], small_config())))
    assert len(keys) > 100
    key = data.draw(st.sampled_from(keys))
    typo = data.draw(st.integers(0, 9)) == 0
    wrong = data.draw(WRONG)
    values = put(small_config(), (*key[:-1], key[-1] + "x") if typo else key, wrong)
    try:
        command.build(values)
    except (ConfigError, ArgumentError) as error:
        line = one_line(error)
        assert line.startswith(key[0]), line
        assert len(line) < 1000, line
    else:
        assert not typo
