"""Bad input is one line on standard error and exit code 2, and nothing is written."""

import copy
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import LAST, LR, Config, finish, small_config, start, write_team
from teamtune.command.cli import main, run

POLICY = "model.policies.team.init_args"
Edit = Callable[[Config], Any]


@pytest.fixture
def signals() -> Iterator[None]:
    """`main` takes over signals; a test gives them back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    kept = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, kept):
        signal.signal(number, handler)


@pytest.fixture
def refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    signals: None,
) -> Callable[..., str]:
    """Runs the command on an edited configuration; the one line it prints, without its prefix."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def check(edit: Edit | None = None, *options: str, command: str = "fit") -> str:
        write_team(tmp_path, edit)
        given = sorted(tmp_path.rglob("*"))
        args = [command, "--config", "config.yaml", *options]
        monkeypatch.setattr(sys, "argv", ["teamtune", *args])
        with pytest.raises(SystemExit) as stopped:
            main()
        output, errors = capsys.readouterr()
        assert stopped.value.code == 2, errors
        assert output == "" and errors.count("\n") == 1, output + errors
        assert errors.startswith("teamtune: error: ")
        assert sorted(tmp_path.rglob("*")) == given, errors
        return errors.removeprefix("teamtune: error: ").strip()

    return check


def put(key: str, value: Any) -> Edit:
    """Sets the value at a dotted key; `...` takes the key away."""

    def edit(config: Config) -> None:
        *path, last = key.split(".")
        for name in path:
            config = config.setdefault(name, {})
        if value is ...:
            del config[last]
        else:
            config[last] = value

    return edit


WARM = {"class_path": "teamtune.callbacks.WarmStart"}
SOLVER = {"class_path": "teamtune.envs.plan_path.NoisySolver"}


def test_a_step_with_more_tasks_than_there_are_is_refused(refused):
    line = refused(put("data.train.init_args.count", 1))
    assert line == "data.tasks_per_step: got 2, allowed: at most 1, the tasks of data.train"


@pytest.mark.parametrize("name", ["a b", "train", "keys"])
def test_names_that_policies_cannot_have_are_refused(refused, name):
    def edit(config: Config) -> None:
        model = config["model"]
        model["policies"] = {name: model["policies"]["team"]}
        model["policy_map"] = dict.fromkeys(model["policy_map"], name)

    assert refused(edit).startswith(f"model.policies.{name}: got a name that metrics, folders or")


def test_a_reference_without_the_warm_start_is_refused_before_anything_is_written(refused):
    def edit(config: Config) -> None:
        callback("teamtune.callbacks.WarmStart", demonstrator=SOLVER, steps=1)(config)
        put(f"{POLICY}.lora.rank", 2)(config)
        put("model.algorithm.init_args.kl_coef", 0.1)(config)

    line = refused(edit)
    assert line.startswith("model.algorithm.init_args.kl_coef: allowed with lora and a warm start")


def callback(class_path: str, **init_args: Any) -> Edit:
    return put("trainer.callbacks", [{"class_path": class_path, "init_args": init_args}])


UNKNOWN: list[tuple[str, Any, str, str]] = [
    ("modle", {}, "modle", "model"),
    ("trainer.max_epoch", 3, "trainer.max_epoch", "max_epochs"),
    ("data.environment.init_args.sise", 4, "data.environment.init_args.sise", "size"),
    (f"{POLICY}.optimzer", {}, f"{POLICY}.optimzer", "optimizer"),
    (f"{POLICY}.optimizer.init_args.lrr", 1, f"{POLICY}.optimizer.init_args.lrr", "lr"),
    (
        f"{POLICY}.model.init_args.hiden_size",
        8,
        f"{POLICY}.model.init_args.hiden_size",
        "hidden_size",
    ),
    ("rollout.sampling.temprature", 1, "rollout.sampling.temprature", "temperature"),
    ("rollout.engine.init_args.dtyp", "x", "rollout.engine.init_args.dtyp", "dtype"),
    ("trainer.logger.init_args.run_nam", "x", "trainer.logger.init_args.run_nam", "run_name"),
    ("data.environment.class_pth", "x", "data.environment.class_pth", "class_path"),
]


@pytest.mark.parametrize(("key", "value", "named", "meant"), UNKNOWN, ids=[u[0] for u in UNKNOWN])
def test_unknown_keys_are_named_with_the_nearest_right_one(refused, key, value, named, meant):
    assert refused(put(key, value)) == f"{named}: unknown key (did you mean {meant!r}?)"


def test_unknown_keys_in_lists_and_options(refused):
    assert refused(callback("teamtune.callbacks.WarmStart", stepz=1)) == (
        "trainer.callbacks.0.init_args.stepz: unknown key (did you mean 'steps'?)"
    )
    assert refused(None, "--trainer.max_epoch", "3") == (
        "trainer.max_epoch: unknown key (did you mean 'max_epochs'?)"
    )
    assert refused(None, f"--{POLICY}.optimizer.init_args.lrr=1") == (
        f"{POLICY}.optimizer.init_args.lrr: unknown key (did you mean 'lr'?)"
    )
    assert refused(None, "--trainer.callbacks+=WarmStart", "--trainer.callbacks.stepz=1") == (
        "trainer.callbacks.0.stepz: unknown key (did you mean 'steps'?)"
    )
    assert refused(None, "--ckpt_pth", "x") == "ckpt_pth: unknown key (did you mean 'ckpt_path'?)"


CLASSES: list[tuple[Edit, str]] = [
    (
        callback("teamtune.callbacks.WarmStrat"),
        "trainer.callbacks.0.class_path: no class 'teamtune.callbacks.WarmStrat' "
        "(did you mean 'teamtune.callbacks.WarmStart'?)",
    ),
    (
        put("data.environment.class_path", "teamtune.envs.PlanPth"),
        "data.environment.class_path: no class 'teamtune.envs.PlanPth' "
        "(did you mean 'teamtune.envs.PlanPath'?)",
    ),
    (
        put("data.environment.class_path", "teamtune.env.PlanPath"),
        "data.environment.class_path: no class 'teamtune.env.PlanPath' "
        "(did you mean 'teamtune.envs.PlanPath'?)",
    ),
    (
        put("model.algorithm", "ATGRP"),
        "model.algorithm: no class 'ATGRP' (did you mean 'ATGRPO'?)",
    ),
    (
        put(f"{POLICY}.optimizer.class_path", "torch.optim.AdmW"),
        f"{POLICY}.optimizer.class_path: no class 'torch.optim.AdmW' "
        "(did you mean 'torch.optim.AdamW'?)",
    ),
    (
        put(f"{POLICY}.optimizer.class_path", "teamtune.envs.PlanPath"),
        f"{POLICY}.optimizer.class_path: teamtune.envs.PlanPath is no Optimizer",
    ),
]


@pytest.mark.parametrize(("edit", "line"), CLASSES, ids=[c[1][:50] for c in CLASSES])
def test_misspelt_classes_are_named_with_the_nearest_right_one(refused, edit, line):
    assert refused(edit) == line


VALUES: list[tuple[str, Any, str]] = [
    (f"{POLICY}.optimizer.init_args.lr", 0, ": got 0.0, allowed: more than 0"),
    (f"{POLICY}.optimizer.init_args.lr", "abc", ": got abc, allowed: a number"),
    (f"{POLICY}.max_grad_norm", "much", ": got much, allowed: a number"),
    (f"{POLICY}.model.init_args.vocabulary", "nowhere", ": cannot read 'nowhere'"),
    (f"{POLICY}.model.init_args.num_heads", 3, ": got 3, allowed: a divisor of 32"),
    ("model.algorithm.init_args.num_candidates", 1, ": got 1, allowed: 2 or more"),
    ("model.algorithm.init_args.select", "gredy", "allowed: greedy or softmax or random"),
    ("model.policies", ..., ": missing"),
    ("data.train.init_args.first_seed", ..., ": missing"),
    ("data.tasks_per_step", "many", ": got many, allowed: a whole number"),
    ("data.tasks_per_step", None, ": got null, allowed: a whole number"),
    ("data.tasks_per_step", {"a": 1}, "allowed: a whole number"),
    ("data.tasks_per_step", 0, ": got 0, allowed: a whole number above 0"),
    ("data.environment.init_args.size", 1, ": got 1, allowed: 2 to 50"),
    ("rollout.engine.init_args.dtype", "float33", ": got float33, allowed: float32 or bfloat16"),
    ("rollout.sampling.top_p", 0.9, ": got 0.9, allowed for training: 1"),
    ("rollout.sampling.top_k", 5, ": got 5, allowed for training: 0 (off)"),
    ("rollout.sampling.temperature", -1, ": got -1, allowed: a number of at least 0"),
    ("rollout.sampling.max_tokens", 0, ": got 0, allowed: a whole number above 0"),
    ("trainer.accelerator", "gpuu", "gpuu"),
    ("trainer.precision", "17", ": got 17, allowed: 64 or 32"),
    ("trainer.precision", "bf16-true", ": got 'bf16-true', allowed: 32-true, bf16-mixed"),
    ("traces.every_n_steps", -1, ": got -1, allowed: a whole number of at least 0"),
    (f"{POLICY}.model.init_args.num_heads", 0, ": got 0, allowed: a whole number above 0"),
    ("model.algorithm.init_args.entropy_target", 0.5, "no effect with entropy_coef 0"),
    ("seed_everything", -1, "-1 is not in bounds"),
    # an agent may be called anything, and a class in its place is built by nobody
    ("model.policy_map.class_path", "teamtune.envs.PlanPath", ""),
]


@pytest.mark.parametrize(("key", "value", "rest"), VALUES, ids=[f"{v[0]}={v[1]}" for v in VALUES])
def test_values_out_of_range_name_the_whole_key(refused, key, value, rest):
    line = refused(put(key, value))
    own = key if rest.startswith(":") or ".init_args" not in key else key.rpartition(".")[0]
    assert line.startswith(own if "." in own and "accelerator" not in own else own.split(".")[0])
    assert rest in line


ENTIRE: list[tuple[str, Any, str]] = [
    ("rollout", None, "rollout: got null, allowed: a mapping of keys"),
    ("data", 3, "data: got 3, allowed: a mapping of keys"),
    ("rollout.sampling", [], "rollout.sampling: got [], allowed: a mapping of keys"),
    (
        "data.train.init_args.count",
        0,
        "data.train.init_args.count: got 0, allowed: a whole number above 0 or null",
    ),
    (
        "trainer.strategy",
        {
            "class_path": "teamtune.strategies.FSDP2Strategy",
            "init_args": {"timeout_minutes": -1},
        },
        "trainer.strategy.init_args.timeout_minutes: got -1, allowed: a number above 0",
    ),
    (
        "rollout.sampling.temperature",
        1e300,
        "rollout.sampling.temperature: got 1e+300, allowed: a number below 2^63",
    ),
    ("trainer.num_nodes", 0, "trainer.num_nodes: got 0, allowed: 1 or more"),
    (
        "trainer.num_nodes",
        2,
        "trainer.num_nodes: got 2, allowed: 1, for neither torchrun nor a cluster started this "
        "process, and it would wait for the other nodes for ever",
    ),
    (
        "trainer.limit_train_batches",
        0,
        "trainer.limit_train_batches: got 0.0, allowed: null, for an epoch is one rollout step; "
        "trainer.max_epochs shortens a run",
    ),
    ("trainer.callbacks", [{"init_args": {"steps": 1}}], "trainer.callbacks.0.class_path: missing"),
    (
        f"{POLICY}.optimizer.class_path",
        "torch.optim.LBFGS",
        f"{POLICY}.optimizer.class_path: torch.optim.LBFGS asks for the loss again, which a "
        "rollout step has once",
    ),
    (
        f"{POLICY}.scheduler",
        {"class_path": "ReduceLROnPlateau"},
        f"{POLICY}.scheduler.class_path: ReduceLROnPlateau follows a metric, which schedules here "
        "are not given",
    ),
    (
        "trainer.callbacks",
        [{"class_path": "EarlyStopping", "init_args": {"monitor": "val/succes"}}],
        "trainer.callbacks.0.init_args.monitor: got 'val/succes', allowed: a metric such as "
        "val/success, val/success_low, val/success_high",
    ),
    (
        "trainer.callbacks",
        [{"class_path": "ModelCheckpoint", "init_args": {"monitor": "nothing"}}],
        "trainer.callbacks.0.init_args.monitor: got 'nothing', allowed: a metric such as "
        "team/loss, val/success",
    ),
    (
        "trainer.callbacks",
        [{"class_path": "EMAWeightAveraging"}],
        "trainer.callbacks.0.class_path: EMAWeightAveraging is not supported, for engines sample "
        "with the weights that are trained",
    ),
    (
        "trainer.callbacks",
        [{"class_path": "StochasticWeightAveraging", "init_args": {"swa_lrs": 0.1}}],
        "trainer.callbacks.0.class_path: StochasticWeightAveraging is not supported, for it takes "
        "one optimizer, and engines sample with the weights that are trained",
    ),
    (
        "trainer.callbacks",
        [{"class_path": "GradientAccumulationScheduler", "init_args": {"scheduling": {0: 2}}}],
        "trainer.callbacks.0.class_path: GradientAccumulationScheduler has no effect here, "
        "model.policies.<name>.init_args.token_budget makes micro-batches",
    ),
    (
        "trainer.enable_checkpointing",
        False,
        "trainer.enable_checkpointing: got False, allowed: None; checkpoint.every_n_steps and "
        "checkpoint.keep say what is saved",
    ),
]


@pytest.mark.parametrize(("key", "value", "line"), ENTIRE, ids=[f"{e[0]}={e[1]}" for e in ENTIRE])
def test_what_starts_nothing_or_cannot_be_meant_is_refused(refused, key, value, line):
    assert refused(put(key, value)) == line


def test_more_processes_than_a_machine_can_hold_are_refused(refused):
    assert refused(put("trainer.devices", 10**9)).startswith("trainer.devices: got 1000000000, all")
    assert refused(None, "--trainer.devices=1000").startswith("trainer.devices: got 1000, allowed")


@pytest.mark.parametrize("root", ["words.txt", "words.txt/inside"])
def test_an_output_path_that_cannot_be_written_is_refused(refused, tmp_path: Path, root: str):
    line = refused(put("trainer.default_root_dir", root))
    assert line == (
        f"trainer.default_root_dir: cannot write to {root}: {tmp_path / 'words.txt'} is no folder"
    )


def test_a_disk_too_small_for_the_planned_checkpoints_is_refused_with_the_numbers(
    refused, monkeypatch
):
    """9,760 weights with two numbers each of Adam, thrice, and the weights once more."""
    weights = 15 * 32 * 2 + 4 * 32 * 32 + 3 * 32 * 48 + 3 * 32
    free = (3 * 3 + 1) * 4 * weights - 1
    usage = type(shutil.disk_usage("."))(10**9, 0, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    line = refused(put("trainer.max_epochs", 100))
    assert line == (
        "trainer.default_root_dir: outputs has 0.00039 GB free, and 3 checkpoints of 0.000117 GB "
        "(checkpoint.keep, and one more while it is written) with exports of 3.9e-05 GB need "
        "0.00039 GB; lower checkpoint.keep, or choose another disk"
    )


def test_a_logger_that_is_not_installed_is_named(refused, monkeypatch):
    from lightning.fabric.loggers import tensorboard

    for name in ("_TENSORBOARD_AVAILABLE", "_TENSORBOARDX_AVAILABLE"):
        monkeypatch.setattr(tensorboard, name, False)
    logger = {"class_path": "TensorBoardLogger", "init_args": {"save_dir": "x"}}
    line = refused(put("trainer.logger", logger))
    assert line.startswith("trainer.logger: Neither `tensorboard` nor `tensorboardX` is available")


def test_what_others_constructors_refuse_names_their_object(refused):
    line = refused(put(f"{POLICY}.optimizer.init_args.lr", -1))
    assert line == f"{POLICY}.optimizer: Invalid learning rate: -1.0"


def test_the_second_policy_s_fault_is_not_taken_for_the_first_one_s(refused):
    def edit(config: Config) -> None:
        policies = config["model"]["policies"]
        policies["other"] = copy.deepcopy(policies["team"])
        policies["other"]["init_args"]["optimizer"]["init_args"]["lr"] = 0
        config["model"]["policy_map"]["planner"] = "other"

    line = refused(edit)
    assert line.startswith("model.policies.other.init_args.optimizer.init_args.lr: got 0.0")


def test_callbacks_are_named_by_their_place(refused):
    line = refused(callback("teamtune.callbacks.WarmStart", demonstrator=SOLVER, steps=0))
    assert line == "trainer.callbacks.0.init_args.steps: got 0, allowed: a whole number above 0"


def test_options_win_over_files_and_are_checked_alike(refused):
    assert refused(None, f"--{LR}", "0").startswith(f"{LR}: got 0.0")
    assert refused(None, f"--{LR}=0").startswith(f"{LR}: got 0.0")


def test_agents_policies_and_tasks_must_fit(refused):
    def unused(config: Config) -> None:
        config["model"]["policies"]["spare"] = copy.deepcopy(config["model"]["policies"]["team"])

    assert refused(put("model.policy_map.planner", ...)) == (
        "model.policy_map: agent 'planner' has no policy"
    )
    assert refused(put("model.policy_map.planner", "taem")) == (
        "model.policy_map.planner: unknown policy 'taem' (did you mean 'team'?); policies: team"
    )
    assert refused(unused) == "model.policies.spare: no agent uses this policy"
    assert "data.val overlaps data.train: seeds from 900 to 901" in refused(
        put("data.val.init_args.first_seed", 900)
    )
    assert refused(
        put("model.policies.a b", small_config()["model"]["policies"]["team"])
    ).startswith("model.policies.a b: got a name")


def test_a_model_without_a_chat_template_or_without_files(refused, tmp_path: Path):
    from transformers import AutoTokenizer

    from teamtune.policies import TinyLlama

    write_team(tmp_path)
    TinyLlama("words.txt", hidden_size=8, num_layers=1, num_heads=2).build(tmp_path / "plain", 0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "plain")
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink(missing_ok=True)
    line = refused(put(f"{POLICY}.model", "plain"))
    assert line.startswith(f"{POLICY}.model: 'plain' has no chat template")
    for path in ("./no/such/folder", "prompts/nope"):
        line = refused(put(f"{POLICY}.model", path))
        assert line == f"{POLICY}.model: cannot load {path!r}: no such folder"


def test_an_engine_that_is_not_installed_names_the_command_that_installs_it(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    line = refused(put("rollout.engine.class_path", "teamtune.inference.vllm.VLLMEngine"))
    assert line.startswith("rollout.engine") and "pip install" in line


def test_subcommands_and_files(refused, monkeypatch, capsys, signals):
    assert refused(command="fitt") == (
        "unknown subcommand 'fitt' (did you mean 'fit'?), allowed: fit, validate, test, predict"
    )
    assert refused(None, "--config", "nowhere.yaml") == (
        "--config: cannot read nowhere.yaml: No such file or directory"
    )
    Path("broken.yaml").write_text("a: [1\nb: 2")
    assert refused(None, "--config=broken.yaml").startswith("--config: broken.yaml: while parsing")
    Path("list.yaml").write_text("- 1")
    assert "expected a mapping" in refused(None, "-c", "list.yaml")
    monkeypatch.setattr(sys, "argv", ["teamtune"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == (
        "teamtune: error: missing subcommand, allowed: fit, validate, test, predict\n"
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the small team."""
    folder = tmp_path_factory.mktemp("saved")
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    write_team(folder)
    run(["fit", "--config", "config.yaml", "--trainer.max_epochs=1", "--trainer.logger=false"])
    patch.undo()
    return folder / "outputs/run-001" / LAST


def test_checkpoints_that_are_none(refused, tmp_path: Path, saved: Path):
    Path("text.ckpt").write_text("hello")
    Path("empty.ckpt").write_bytes(b"")
    Path("torn.ckpt").write_bytes(saved.read_bytes()[:-2000])
    torch.save({"state_dict": {}}, "foreign.ckpt")
    torch.save(torch.zeros(2), "tensor.ckpt")
    for name in ("text", "empty", "torn"):
        assert refused(None, "--ckpt_path", f"{name}.ckpt") == (
            f"ckpt_path: {name}.ckpt cannot be read as a checkpoint"
        )
    for name in ("foreign", "tensor"):
        assert refused(None, f"--ckpt_path={name}.ckpt") == (
            f"ckpt_path: {name}.ckpt was not written by this version of teamtune"
        )
    assert refused(None, "--ckpt_path", "nowhere") == "ckpt_path: no checkpoint at nowhere"
    assert refused(None, "--ckpt_path", "last") == (
        "ckpt_path: got last, and no run in outputs has a checkpoints/last.ckpt"
    )
    assert refused(None, "--ckpt_path", "prompts", command="test").startswith(
        "ckpt_path: prompts is a folder"
    )


def test_a_checkpoint_of_another_team(refused, saved: Path):
    load = ("--ckpt_path", str(saved))

    def renamed(config: Config) -> None:
        config["model"]["policies"] = {"crew": config["model"]["policies"]["team"]}
        config["model"]["policy_map"] = dict.fromkeys(("proposer", "planner"), "crew")

    def alone(config: Config) -> None:
        put("data.environment.init_args.first_role", "none")(config)
        put("model.policy_map.proposer", ...)(config)

    def longer(config: Config) -> None:
        Path("more.txt").write_text(Path("words.txt").read_text() + " more")
        put(f"{POLICY}.model.init_args.vocabulary", "more.txt")(config)

    Path("more.txt").touch()
    assert "with the policies team; model.policies has crew" in refused(renamed, *load)
    assert "with the policy_map" in refused(alone, *load)
    assert "lm.lm_head.weight is (15, 32) in the checkpoint and (16, 32)" in refused(
        longer, *load, command="validate"
    )
    assert "does not fit model.policies.team" in refused(
        put(f"{POLICY}.model.init_args.hidden_size", 16), *load
    )
    assert "is missing in the checkpoint" in refused(
        put(f"{POLICY}.model.init_args.num_layers", 2), *load
    )
    assert "reference" in refused(put("model.algorithm.init_args.kl_coef", 0.1), *load)


@pytest.mark.slow
def test_the_command_itself_prints_the_line_and_writes_nothing(tmp_path: Path):
    write_team(tmp_path, put("rollout.sampling.temprature", 1))
    code, output, errors = finish(start(tmp_path, "fit", "--config", "config.yaml"))
    assert (code, output) == (2, "")
    assert errors == (
        "teamtune: error: rollout.sampling.temprature: unknown key (did you mean 'temperature'?)\n"
    )
    assert {p.name for p in tmp_path.iterdir()} == {"prompts", "words.txt", "config.yaml"}
