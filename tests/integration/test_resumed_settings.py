"""What a resumed run does with a checkpoint that does not fit, and with settings that changed."""

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from command_line import LAST, LR, Config, write_team
from teamtune.command.checkpoints import find_checkpoint, read_checkpoint
from teamtune.command.cli import run
from teamtune.errors import ConfigError

POLICY = "model.policies.team.init_args"
FIT = ("fit", "--config", "config.yaml", "--trainer.logger=false")
SCHEDULE = {"class_path": "torch.optim.lr_scheduler.LinearLR"}
SCHEDULE |= {"init_args": {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 4}}
Change = Callable[[Config], Any]


def put(key: str, value: Any) -> Change:
    def edit(config: Config) -> None:
        *path, last = key.split(".")
        for name in path:
            config = config.setdefault(name, {})
        config[last] = value

    return edit


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two steps, whose optimizers moved."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_team(folder, learning)
        run(FIT)
    return folder


def learning(config: Config) -> None:
    """Every step has something to learn: the bonus on entropy."""
    put("model.algorithm.init_args.entropy_coef", 0.01)(config)


@pytest.fixture
def folder(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(saved)
    yield saved
    write_team(saved, learning)


def resume(folder: Path, change: Change | None = None, *options: str, steps: int = 3) -> Path:
    """Resumes the first run with a changed configuration; the new run's folder."""

    def both(config: Config) -> None:
        learning(config)
        if change is not None:
            change(config)

    write_team(folder, both)
    last = folder / "outputs/run-001" / LAST
    options = options or ("--ckpt_path", str(last))
    run([*FIT, f"--trainer.max_epochs={steps}", *options])
    return max((folder / "outputs").glob("run-*"))


def refusal(folder: Path, change: Change | None = None, *options: str) -> str:
    before = sorted((folder / "outputs").glob("*"))
    with pytest.raises(ConfigError) as error:
        resume(folder, change, *options)
    assert sorted((folder / "outputs").glob("*")) == before
    assert "\n" not in str(error.value)
    return str(error.value)


def group_of(run_folder: Path) -> dict[str, Any]:
    checkpoint = torch.load(run_folder / LAST, weights_only=True)
    return checkpoint["optimizer_states"][0]["param_groups"][0]


def test_a_byte_that_flipped_anywhere_is_noticed(folder: Path, tmp_path: Path):
    original = (folder / "outputs/run-001" / LAST).read_bytes()
    whole = torch.load(folder / "outputs/run-001" / LAST, weights_only=True)
    rng, noticed = random.Random(0), 0
    for _ in range(60):
        damaged = bytearray(original)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path = tmp_path / "flipped.ckpt"
        path.write_bytes(damaged)
        try:
            found = read_checkpoint(path)
        except ConfigError as error:
            assert str(path) in str(error)
            noticed += 1
        else:  # in the padding between the parts, which says nothing
            for name, value in whole["state_dict"].items():
                assert torch.equal(value, found["state_dict"][name])
    assert noticed > 40


def test_a_flipped_weight_names_the_part_of_the_file(folder: Path, tmp_path: Path):
    path = tmp_path / "flipped.ckpt"
    checkpoint = torch.load(folder / "outputs/run-001" / LAST, weights_only=True)
    weight = checkpoint["state_dict"]["policies.team.scorer.lm.lm_head.weight"]
    data = (folder / "outputs/run-001" / LAST).read_bytes()
    at = data.index(weight.numpy().tobytes())
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(ConfigError, match="is damaged: the checksum of its part .*/data/"):
        read_checkpoint(path)


def test_a_checkpoint_of_other_heads_vocabulary_algorithm_or_optimizer_is_refused(folder: Path):
    path = folder / "outputs/run-001" / LAST

    def reversed_words(config: Config) -> None:
        words = Path("words.txt").read_text().split()
        Path("reversed.txt").write_text(" ".join(reversed(words)))
        put(f"{POLICY}.model.init_args.vocabulary", "reversed.txt")(config)

    def grpo(config: Config) -> None:
        config["model"]["algorithm"]["class_path"] = "teamtune.algorithms.GRPO"

    where = str(path.with_name("step-000002.ckpt"))
    line = refusal(folder, put(f"{POLICY}.model.init_args.num_heads", 4)).replace(str(path), where)
    assert line == (
        f"ckpt_path: {where} does not fit model.policies.team.init_args.model: head_dim is 16 in "
        "the checkpoint and 8 here"
    )
    assert "its tokens are others, or in another order" in refusal(folder, reversed_words)
    assert refusal(folder, grpo).startswith(
        "model.algorithm: got teamtune.algorithms.grpo.GRPO, allowed: "
        "teamtune.algorithms.at_grpo.ATGRPO, which "
    )
    sgd = {"class_path": "torch.optim.SGD", "init_args": {"lr": 1e-3}}
    assert refusal(folder, put(f"{POLICY}.optimizer", sgd)).startswith(
        f"{POLICY}.optimizer: got torch.optim.sgd.SGD, allowed: torch.optim.adamw.AdamW, whose "
    )


def test_an_emptied_optimizer_and_another_number_format_are_refused(folder: Path, tmp_path: Path):
    checkpoint = torch.load(folder / "outputs/run-001" / LAST, weights_only=True)
    emptied = copy.deepcopy(checkpoint)
    count = len(emptied["optimizer_states"][0]["state"])
    emptied["optimizer_states"][0]["state"] = {}
    torch.save(emptied, tmp_path / "emptied.ckpt")
    line = refusal(folder, None, "--ckpt_path", str(tmp_path / "emptied.ckpt"))
    assert f"lacks optimizer_states: got [0] entries for the policies team, expected [{count}]" in (
        line
    )
    name = "policies.team.scorer.lm.lm_head.weight"
    checkpoint["state_dict"][name] = checkpoint["state_dict"][name].bfloat16()
    torch.save(checkpoint, tmp_path / "half.ckpt")
    line = refusal(folder, None, "--ckpt_path", str(tmp_path / "half.ckpt"))
    assert f"has {name} in bfloat16, allowed: float32" in line


HOLDER = """
import sys
from pathlib import Path
from teamtune.callbacks.run_folder import lock
locks = lock(Path(sys.argv[1]))
print(len(locks), flush=True)
sys.stdin.read()
"""


def test_a_run_that_another_process_trains_on_is_refused_until_that_one_dies(folder: Path):
    source = Path(__file__).parents[2] / "src"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder / "outputs/run-001")],
        env={"PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "1\n"
        line = refusal(folder)
        assert line.startswith(f"ckpt_path: {folder / 'outputs/run-001'} is in use by process ")
        assert f"process {holder.pid} on " in line
    finally:
        holder.kill()
        holder.communicate()
    assert (resume(folder) / LAST).exists()


def test_a_changed_learning_rate_takes_effect_and_is_said(folder: Path, capsys):
    resumed = resume(folder, None, f"--{LR}=1e-4", "--ckpt_path", f"outputs/run-001/{LAST}")
    said = capsys.readouterr().out
    assert "policy team goes on with another optimizer setting: lr 0.001 -> 0.0001" in said
    assert group_of(resumed)["lr"] == 1e-4
    config = yaml.safe_load((resumed / "config.yaml").read_text())
    policy = config["model"]["policies"]["team"]["init_args"]
    assert policy["optimizer"]["init_args"]["lr"] == 1e-4
    assert Path(config["ckpt_path"]) == Path("outputs/run-001") / LAST
    before = yaml.safe_load((folder / "outputs/run-001/config.yaml").read_text())
    policy = before["model"]["policies"]["team"]["init_args"]
    assert policy["optimizer"]["init_args"]["lr"] == 1e-3


def test_a_new_schedule_is_where_a_run_from_the_start_would_have_it(folder: Path):
    """Linear from 1e-3 to 0 in four steps: after three, a quarter."""
    resumed = resume(folder, put(f"{POLICY}.scheduler", SCHEDULE))
    assert group_of(resumed)["lr"] == pytest.approx(0.25e-3)
    longer = copy.deepcopy(SCHEDULE)
    longer["init_args"]["total_iters"] = 8
    write_team(folder, learning)

    def change(config: Config) -> None:
        learning(config)
        put(f"{POLICY}.scheduler", longer)(config)

    write_team(folder, change)
    run([*FIT, "--trainer.max_epochs=4", "--ckpt_path", str(resumed)])
    again = max((folder / "outputs").glob("run-*"))
    assert group_of(again)["lr"] == pytest.approx(0.5e-3)
    third = resume(folder, None, "--ckpt_path", str(again), steps=5)
    assert group_of(third)["lr"] == 1e-3 and "initial_lr" not in group_of(third)


def stopping(patience: int) -> Change:
    """Ends a run after so many evaluations without a gain of 2, which there never is."""
    stop = {"monitor": "val/success", "mode": "max", "min_delta": 2.0, "patience": patience}
    part = {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": stop}
    return put("trainer.callbacks", [part])


@pytest.mark.parametrize(("patience", "end"), [(1, 3), (3, 4), (100, 5)])
def test_a_changed_patience_takes_effect(folder: Path, patience: int, end: int):
    """Saved with a patience of 3, after the second evaluation, the first without a gain."""

    def before(config: Config) -> None:
        learning(config)
        stopping(3)(config)

    write_team(folder, before)
    run([*FIT, "--trainer.max_epochs=2"])
    saved = max((folder / "outputs").glob("run-*"))
    resumed = resume(folder, stopping(patience), "--ckpt_path", str(saved / LAST), steps=5)
    assert torch.load(resumed / LAST, weights_only=True)["team"]["rollout_step"] == end


def logged(run_folder: Path) -> dict[str, float]:
    """The metrics of a run's last step."""
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    return {name: value for line in lines for name, value in json.loads(line)["values"].items()}


def test_other_tokens_and_another_engine_take_effect_and_other_batches_change_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.modules[__name__], "FIT", FIT[:-1])  # with the journal of metrics
    plain = resume(folder)
    shorter = resume(folder, put("rollout.sampling.max_tokens", 2))
    assert logged(plain)["rollout/completion_tokens"] > 2
    assert logged(shorter)["rollout/completion_tokens"] <= 2
    rounded = {
        "class_path": "teamtune.inference.TransformersEngine",
        "init_args": {"dtype": "bfloat16"},
    }

    def engine(config: Config) -> None:
        put("rollout.engine", rounded)(config)
        put("weight_sync.tolerance", 1.0)(config)

    assert logged(resume(folder, engine))["team/sampling_gap"] > 1e-4
    assert logged(plain)["team/sampling_gap"] < 1e-5
    small = resume(folder, put(f"{POLICY}.token_budget", 40))
    weights = [torch.load(run / LAST, weights_only=True)["state_dict"] for run in (plain, small)]
    for one, other in zip(*(each.values() for each in weights)):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_a_finished_run_says_so_and_exports(folder: Path, capsys):
    resumed = resume(folder, steps=2)
    assert "nothing to train: the checkpoint is of step 2, and trainer.max_epochs is 2" in (
        capsys.readouterr().out
    )
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(resumed / "export/team")
    trained = torch.load(folder / "outputs/run-001" / LAST, weights_only=True)["state_dict"]
    name = "policies.team.scorer.lm.lm_head.weight"
    assert torch.equal(model.state_dict()["lm_head.weight"], trained[name])


def test_without_links_last_names_the_newest_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def refused(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refused)
    resumed = resume(folder)
    assert (resumed / LAST).read_text() == "step-000003.ckpt"
    for path in (resumed, resumed / LAST):
        assert find_checkpoint(path, "outputs") == resumed / "checkpoints/step-000003.ckpt"
