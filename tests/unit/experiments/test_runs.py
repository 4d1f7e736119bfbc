"""What a study.yaml makes of its rows: command lines, what begins with what, and mistakes in it."""

import json
import subprocess

import pytest
from experiments import jobs
from experiments.design import read_study
from experiments.runs import NO_TRAINING, runs_of
from experiments.study import main

from teamtune.errors import ConfigError

WARM = {"class_path": "teamtune.callbacks.WarmStart", "init_args": {"steps": 1}}
CONFIG = {
    "trainer": {"max_epochs": 4, "callbacks": [WARM, {"class_path": "a.B"}]},
    "model": {"policies": {"team": {"init_args": {"model": {"class_path": "TinyLlama"}}}}},
}
PAIR = {"model": {"policies": {"team-": None, "one": {}, "two": {}}}}
STUDY = {
    "question": "?",
    "seeds": [0, 3],
    "configs": ["base.yaml"],
    "options": {"data.tasks_per_step": 8},
    "rows": {
        "warm": {"label": "warm", "train": False},
        "shared": {"label": "shared", "start_from": "warm"},
        "pair": {"label": "pair", "start_from": "warm", "configs": ["pair.yaml"]},
        "swapped": {
            "label": "swapped",
            "configs": ["pair.yaml"],
            "start_from": {"one": "pair/two", "two": "pair/one"},
            "train": False,
        },
    },
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes exp/study.yaml, changed, and reads it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp").mkdir()
    (tmp_path / "base.yaml").write_text(json.dumps(CONFIG))
    (tmp_path / "exp/pair.yaml").write_text(json.dumps(PAIR))

    def written(**change):
        (tmp_path / "exp/study.yaml").write_text(json.dumps(STUDY | change))
        return read_study(tmp_path / "exp")

    return written


def run_of(study, row, seed=0):
    return next(run for run in runs_of(study, [row], [seed]) if run.row == row)


def policy_models(run):
    policies = json.loads(jobs.values(run))["model"]["policies"]
    return {name: policy["init_args"]["model"] for name, policy in policies.items()}


def test_a_row_brings_the_rows_that_it_starts_from(write):
    runs = [str(run) for run in runs_of(write(), ["swapped"], [0, 3])]
    assert runs == [f"{row}/seed-{n}" for n in (0, 3) for row in ("warm", "pair", "swapped")]


def test_rows_begin_with_the_weights_that_another_row_exported(write):
    """A single policy goes to all; named ones can be swapped; WarmStart alone is dropped."""
    study = write()
    shared = run_of(study, "shared", 3)
    warm = "outputs/studies/exp/warm/seed-3/run-001/export/team"
    assert policy_models(shared) == {"team": warm}
    callbacks = json.loads(jobs.values(shared))["trainer"]["callbacks"]
    assert [c["class_path"] for c in callbacks] == ["a.B"]
    assert policy_models(run_of(study, "pair", 3)) == {"one": warm, "two": warm}
    pair = "outputs/studies/exp/pair/seed-0/run-001/export"
    assert policy_models(run_of(study, "swapped")) == {"one": f"{pair}/two", "two": f"{pair}/one"}


def test_a_row_without_training_keeps_its_warm_start_and_ends_after_it(write):
    run = run_of(write(), "warm")
    callbacks = json.loads(jobs.values(run))["trainer"]["callbacks"]
    assert callbacks == [*CONFIG["trainer"]["callbacks"], NO_TRAINING]
    assert run.last_step == 0 and run_of(write(), "shared").last_step == 4


def test_seed_folder_and_parent_are_in_the_command(write):
    words = jobs.command(run_of(write(), "shared", 3), "abc")
    options = dict(zip(words[1::2], words[2::2]))
    assert options["--seed_everything"] == "3" and options["--data.tasks_per_step"] == "8"
    assert options["--trainer.default_root_dir"] == "outputs/studies/exp/shared/seed-3"
    settings = json.loads(options["--trainer.logger"])["init_args"]
    assert settings == {"run_name": "exp/shared/seed-3", "parent_run_id": "abc"}
    assert "--ckpt_path" not in words


def test_how_far_a_run_has_come(write):
    run = run_of(write(), "shared")
    session = run.folder / "run-001"
    (session / "checkpoints").mkdir(parents=True)
    assert not run.resumable
    (session / "checkpoints/last.ckpt").touch()
    (session / "evaluations.json").write_text(json.dumps([{"step": 2}]))
    assert run.resumable and jobs.command(run)[-2:] == ["--ckpt_path", "last"]
    (session / "evaluations.json").write_text(json.dumps([{"step": 2}, {"step": 4}]))
    assert not run.finished and not run.resumable  # ended before it was exported: begins again
    (session / "export").mkdir()
    assert run.finished


def test_a_run_with_other_settings_is_not_taken_for_this_one(write, capsys):
    run = run_of(write(), "warm")
    run.folder.mkdir(parents=True)
    (run.folder / jobs.VALUES).write_text(jobs.values(run))
    assert main(["exp", "--dry-run"]) == 0 and "warm/seed-0: begin" in capsys.readouterr().out
    write(options={"data.tasks_per_step": 9})
    assert main(["exp", "--dry-run"]) == 2
    assert "seed-0: made with other settings than rows.warm" in capsys.readouterr().err


def test_a_run_waits_until_the_process_that_it_starts_from_has_ended(write, monkeypatch):
    """Its files alone could be half written. What does not depend on it goes on beside it."""
    seen = []

    class Sleeping(jobs.Jobs):
        def _process(self, run):
            seen.append((str(run), [str(other) for other in self.running]))
            (run.folder / "run-001/export").mkdir(parents=True)
            steps = json.dumps([{"step": run.last_step}])
            (run.folder / "run-001/evaluations.json").write_text(steps)
            return subprocess.Popen(["sleep", "0.3"])

    monkeypatch.setattr(jobs, "PAUSE", 0.01)
    work = Sleeping(runs_of(write(), ["shared"], [0, 3]), 2, None)
    work.work()
    assert work.failed == {} and seen[1] == ("warm/seed-3", ["warm/seed-0"])
    assert all(f"warm/{run[-6:]}" not in beside for run, beside in seen[2:])
    assert sorted(run for run, _ in seen) == [
        f"{row}/seed-{n}" for row in ("shared", "warm") for n in (0, 3)
    ]


def test_what_starts_from_a_run_that_failed_is_not_run(write, monkeypatch):
    monkeypatch.setattr(jobs.Jobs, "_process", lambda self, run: subprocess.Popen(["false"]))
    work = jobs.Jobs(runs_of(write(), ["swapped"], [0]), 1, None)
    work.work()
    why = {str(run): reason.partition(",")[0] for run, reason in work.failed.items()}
    assert why == {
        "warm/seed-0": "exit code 1",
        "pair/seed-0": "it starts from warm/seed-0",
        "swapped/seed-0": "it starts from warm/seed-0",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrik": "success"}, "metrik"),
        ({"seeds": [-1]}, "seeds"),
        ({"rows": {}}, "allowed: rows, or a script"),
        ({"script": "x.py"}, "allowed: rows, or a script"),
        ({"rows": {"a": {"label": "a", "start_from": "b"}}}, "rows.a.start_from: got b"),
        ({"rows": {"a": {"label": "a", "start": "b"}}}, "start"),
    ],
)
def test_a_mistake_is_named(write, change, said):
    with pytest.raises(ConfigError, match=said):
        write(**change)


def test_an_unknown_row_or_policy_is_named(write):
    with pytest.raises(ConfigError, match=r"--rows: unknown shard \(did you mean 'shared'\?\)"):
        runs_of(write(), ["shard"], [0])
    rows = STUDY["rows"] | {"bad": {"label": "b", "start_from": {"team": "pair/three"}}}
    with pytest.raises(ConfigError, match="pair/seed-0 has no policy three"):
        _ = run_of(write(rows=rows), "bad").arguments
