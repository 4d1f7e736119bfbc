"""Files merge key by key, options win, and the schema accepts whatever the parser accepts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from command_line import Config, small_config, write_team
from teamtune.command.arguments import read_arguments
from teamtune.command.cli import one_line, run
from teamtune.command.overlays import merge, read_file
from teamtune.errors import ConfigError


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_merge_keeps_what_an_overlay_does_not_name():
    base = {"policies": {"a": {"lr": 1}, "b": {"lr": 2}}, "steps": 3}
    overlay = {"policies": {"a": {"lr": 5}}}
    assert merge(base, overlay) == {"policies": {"a": {"lr": 5}, "b": {"lr": 2}}, "steps": 3}
    assert base == {"policies": {"a": {"lr": 1}, "b": {"lr": 2}}, "steps": 3}


def test_merge_drops_the_arguments_of_another_class_only():
    base = {"class_path": "A", "init_args": {"x": 1, "y": 2}}
    assert merge(base, {"class_path": "B"}) == {"class_path": "B"}
    assert merge(base, {"class_path": "A", "init_args": {"x": 3}}) == {
        "class_path": "A",
        "init_args": {"x": 3, "y": 2},
    }
    assert merge(base, {"init_args": {"y": 0}})["init_args"] == {"x": 1, "y": 0}
    assert merge("A", {"init_args": {"x": 1}}) == {"class_path": "A", "init_args": {"x": 1}}


def test_merge_removes_with_minus_what_is_there():
    base = {"policy_map": {"proposer": "team", "planner": "team"}}
    assert merge(base, {"policy_map": {"proposer-": None}}) == {"policy_map": {"planner": "team"}}
    with pytest.raises(ConfigError, match=r"proposr-: nothing to remove \(did you mean 'proposer'"):
        merge(base, {"policy_map": {"proposr-": None}})


def test_merge_replaces_lists_appends_with_plus_and_keeps_null():
    assert merge({"a": [1, 2]}, {"a": [3]}) == {"a": [3]}
    assert merge({"a": [1, 2]}, {"a+": [3]}) == {"a": [1, 2, 3]}
    assert merge({"a": [1, 2]}, {"a+": 3}) == {"a": [1, 2, 3]}
    assert merge({"a": {"b": 1}}, {"a": None}) == {"a": None}


def test_merge_lists_of_objects_class_by_class():
    base = [
        {"class_path": "teamtune.callbacks.WarmStart", "init_args": {"steps": 4, "max_turns": 2}},
        {"class_path": "ModelCheckpoint", "init_args": {"monitor": "val/success"}},
    ]
    overlay = [
        {"class_path": "EarlyStopping"},
        {"class_path": "WarmStart", "init_args": {"steps": 9}},
    ]
    assert merge(base, overlay) == [
        {"class_path": "WarmStart", "init_args": {"steps": 9, "max_turns": 2}},
        base[1],
        {"class_path": "EarlyStopping"},
    ]
    assert merge(base, []) == []
    twice = [{"class_path": "A", "init_args": {"x": 1}}, {"class_path": "A", "init_args": {"x": 2}}]
    assert merge([twice[0]], twice) == twice


def test_a_file_lies_over_its_base_and_several_over_each_other(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    write(tmp_path, "low.yaml", "a: {x: 1, y: 1, z: 1}\nb: {class_path: A, init_args: {p: 1}}")
    write(tmp_path, "deep/mid.yaml", "base: ../low.yaml\na: {y: 2, z-: }")
    write(tmp_path, "other.yaml", "a: {w: 3}\nb: {class_path: B}")
    top = write(tmp_path, "top.yaml", "base: [deep/mid.yaml, other.yaml]\na: {w: 4}")
    assert read_file(top) == {"a": {"x": 1, "y": 2, "w": 4}, "b": {"class_path": "B"}}


LAUGHS = "a0: &a0 [x, x]\n" + "\n".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: own.yaml", "base: own.yaml lies over itself"),
        ("base: nowhere.yaml", "cannot read nowhere.yaml: No such file"),
        ("base: 3", "base: got 3 in own.yaml, allowed: file names"),
        ("base: [3]", "base: got [3] in own.yaml, allowed: file names"),
        ("a: 1\nb: {c: 1, d: 2, c: 3}", "own.yaml:2: key 'c' is given twice"),
        (LAUGHS, "own.yaml: more than 100000 keys and values"),
        ("a: &a [*a]", "own.yaml: more than 100000 keys and values"),
        ("[" * 5000, "own.yaml: nested too deeply"),
        ("a: !!python/object:os.system {}", "own.yaml: could not determine a constructor"),
        ("", "own.yaml: expected a mapping of keys"),
    ],
)
def test_files_that_cannot_work(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "own.yaml", text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_file("own.yaml")


def test_an_option_that_names_another_class_drops_what_the_old_one_had(tmp_path: Path):
    file = write(
        tmp_path,
        "1.yaml",
        "data: {val: {class_path: A, init_args: {count: 2}}}\n"
        "o: {class_path: Adam, init_args: {lr: 1}}",
    )
    for options, val, optimizer in (
        (['--data.val={"class_path": "B"}', "--o=SGD"], {"class_path": "B"}, "SGD"),
        (
            ['--data.val={"class_path": "A", "init_args": {"x": 1}}', "--o.class_path", "m.SGD"],
            {"class_path": "A", "init_args": {"count": 2, "x": 1}},
            {"class_path": "m.SGD"},
        ),
    ):
        arguments = read_arguments(["fit", "--config", file, *options])
        given = json.loads(arguments.args[2])
        assert given == arguments.values == {"data": {"val": val}, "o": optimizer}
        assert arguments.args == ["fit", "--config", arguments.args[2]]


def test_files_and_options_are_read_together(tmp_path: Path):
    first = write(tmp_path, "1.yaml", "a: {x: 8e-4, y: '1e3', z: [{p: 1}, {q: 2}]}\nb: on")
    second = write(tmp_path, "2.yaml", "a: {x: 1e-5}")
    options = ("--a.w=1", "--a.z.q", "3", "--c.d.e", "null", "--f=")
    for order in (
        ("fit", "--config", first, "--config", second, *options),
        ("--config", first, "fit", "-c", second, *options),
        ("fit", *options, f"--config={first}", f"-c={second}"),
    ):
        arguments = read_arguments(order)
        assert arguments.subcommand == "fit"
        assert arguments.values["a"] == {
            "x": 1e-5,
            "y": "1e3",
            "z": [{"p": 1}, {"q": 3}],
            "w": 1,
        }
        assert arguments.values["c"] == {"d": {"e": None}}
        at = arguments.args.index("--config")
        assert arguments.args.count("--config") == 1 and arguments.args[at - 1] == "fit"
        assert tuple(arguments.args[at + 2 :]) == options


def test_a_file_with_sections_by_subcommand(tmp_path: Path):
    file = write(tmp_path, "1.yaml", "fit: {a: 1}\nvalidate: {a: 2}")
    assert read_arguments(["--config", file, "fit"]).values == {"a": 1}
    assert read_arguments(["validate", "--config", file]).values == {"a": 2}
    assert read_arguments(["test", "--config", file]).values == {}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "missing subcommand"),
        (["fitt"], "did you mean 'fit'"),
        (["fit", "--config"], "expected a file name"),
        (["fit", "--config", "/nowhere.yaml"], "cannot read /nowhere.yaml: No such file"),
        (["fit", "--config", "/"], "cannot read /: Is a directory"),
    ],
)
def test_arguments_that_cannot_be_read(args: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        read_arguments(args)


def test_one_line_keeps_what_a_union_says_first():
    text = (
        'Parser key "trainer.callbacks":\n  Does not validate against any of the Union subtypes\n'
        "  Errors:\n    - Problem with given class_path 'x':\n        no such thing\n"
        "    - Expected a <class 'NoneType'>\n  Given value: [1]"
    )
    assert one_line(ValueError(text)) == (
        "trainer.callbacks: Problem with given class_path 'x': no such thing"
    )
    assert one_line(ValueError("a\n  b")) == "a b"


def parsed(capsys: pytest.CaptureFixture[str], *args: str) -> Config:
    """What `--print_config` prints for a configuration that is accepted."""
    with pytest.raises(SystemExit) as stopped:
        run([*args, "--print_config"])
    assert not stopped.value.code
    return yaml.safe_load(capsys.readouterr().out)


SOLVER = "teamtune.envs.plan_path.NoisySolver"
ACCEPTED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "as it is": ({}, ()),
    "class names alone": (
        {"model": {"algorithm": "ATGRPO"}, "rollout": {"engine": "TransformersEngine"}},
        (),
    ),
    "null where it means something": (
        {"trainer": {"logger": None, "callbacks": None}, "ckpt_path": None},
        (),
    ),
    "false": ({"trainer": {"logger": False}}, ()),
    "the default logger's arguments": (
        {"trainer": {"logger": {"init_args": {"run_name": "x"}}}},
        (),
    ),
    "a list of loggers": (
        {
            "trainer": {
                "logger": [
                    {"class_path": "teamtune.tracking.MLflowTracker"},
                    {"class_path": "CSVLogger", "init_args": {"save_dir": "x"}},
                ]
            }
        },
        (),
    ),
    "one callback": (
        {"trainer": {"callbacks": {"class_path": "LearningRateMonitor"}}},
        (),
    ),
    "appended callbacks": ({"trainer": {"callbacks+": [{"class_path": "ModelSummary"}]}}, ()),
    "appended options": (
        {},
        (
            "--trainer.callbacks+=WarmStart",
            f"--trainer.callbacks.demonstrator={SOLVER}",
            "--trainer.callbacks.demonstrator.noise=0.5",
            "--trainer.callbacks.steps=3",
        ),
    ),
    "keyword arguments": (
        {
            "trainer": {
                "callbacks": [{"class_path": "ModelSummary", "dict_kwargs": {"max_depth": 2}}]
            }
        },
        (),
    ),
    "free mappings": ({"rollout": {"engine": {"init_args": {"template_args": {"any": [1]}}}}}, ()),
    "a mapping of times": ({"trainer": {"max_time": {"hours": 1}}}, ()),
    "a model's name": (
        {"model": {"policies": {"team": {"init_args": {"model": "some/model"}}}}},
        (),
    ),
    "another class by option": (
        {
            "data": {
                "train": {
                    "class_path": "teamtune.envs.plan_path.DetourTasks",
                    "init_args": {"first_seed": 1_000_000, "detour_share": 0.1},
                }
            }
        },
        (
            "--data.train.class_path=teamtune.tasks.GeneratedTasks",
            "--data.train.init_args.first_seed=1000000",
        ),
    ),
    "options without init_args": ({}, ("--data.environment.size", "7", "--seed_everything=true")),
    "plugins": (
        {
            "trainer": {
                "plugins": [{"class_path": "lightning.pytorch.plugins.io.AsyncCheckpointIO"}]
            }
        },
        (),
    ),
    "a strategy by class": (
        {"trainer": {"strategy": {"class_path": "SingleDeviceStrategy"}}},
        (),
    ),
    "a schedule": (
        {
            "model": {
                "policies": {
                    "team": {
                        "init_args": {
                            "scheduler": {
                                "class_path": "torch.optim.lr_scheduler.LinearLR",
                                "init_args": {"total_iters": 5},
                            }
                        }
                    }
                }
            }
        },
        (),
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_parser_accepts_is_accepted(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    overlay, options = ACCEPTED[name]
    monkeypatch.chdir(tmp_path)
    base = write_team(tmp_path)
    (tmp_path / "overlay.yaml").write_text(yaml.safe_dump(overlay))
    parsed(capsys, "fit", "--config", str(base), "--config", "overlay.yaml", *options)


def test_print_config_shows_overlays_and_options_and_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)

    def two(config: Config) -> None:
        policies = config["model"]["policies"]
        policies["other"] = small_config()["model"]["policies"]["team"]
        config["model"]["policy_map"]["planner"] = "other"

    args = ["fit", "--config", str(write_team(tmp_path, two))]
    rate = "init_args: {optimizer: {init_args: {lr: 8e-4}}}"
    args += ["--config", write(tmp_path, "o.yaml", f"model: {{policies: {{other: {{{rate}}}}}}}")]
    args += ["--model.policies.team.init_args.optimizer.init_args.lr", "2e-5"]
    shown = parsed(capsys, *args)
    rates = {
        name: policy["init_args"]["optimizer"]["init_args"]["lr"]
        for name, policy in shown["model"]["policies"].items()
    }
    assert rates == {"team": 2e-5, "other": 8e-4}
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump(shown))
    assert parsed(capsys, "fit", "--config", "shown.yaml") == shown
