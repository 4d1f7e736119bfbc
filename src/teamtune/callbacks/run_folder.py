"""Every run writes to a folder of its own, so that nothing already written is overwritten.

A folder is in use by the run that writes it, and by the one that goes on from it: the operating
system's lock on a file in there says so, and dies with the process.
"""

import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import BinaryIO

import lightning as L
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from teamtune.errors import ConfigError

LOCK = "lock"
KEY = "trainer.default_root_dir"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def open_run_folder(
    trainer: L.Trainer, checkpoint: Path | None = None
) -> tuple[Path, list[BinaryIO]]:
    """`<default_root_dir>/run-NNN` with the first free number, made on rank zero, known to all.

    Args:
        trainer: Whose ranks all call.
        checkpoint: The file that a training run goes on from.

    Returns:
        The folder, and on rank zero the locks on it and on the checkpoint's run; to be closed.

    Raises:
        ConfigError: It cannot be made, or another process trains on the checkpoint's run.
    """
    folder, refusal = "", ""
    locks: list[BinaryIO] = []
    if trainer.is_global_zero:
        try:
            source = None if checkpoint is None else run_of(checkpoint)
            if source is not None:
                locks += lock(source)
            made = _make(Path(trainer.default_root_dir))
            locks += lock(made)
            folder = str(made)
        except ConfigError as error:  # so that no rank waits for one that has ended
            refusal = str(error)
    folder, refusal = trainer.strategy.broadcast((folder, refusal))
    if refusal:
        raise ConfigError(refusal)
    return Path(folder), locks


def check_run_folder(root: Path, checkpoint: Path | None) -> None:
    """Raises ConfigError for what `open_run_folder` would refuse; writes nothing.

    Args:
        root: The folder of runs, which need not exist.
        checkpoint: As there.
    """
    there = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    if not there.is_dir():
        raise ConfigError(f"{KEY}: cannot write to {root}: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"{KEY}: cannot write to {root}: no permission in {there}")
    source = None if checkpoint is None else run_of(checkpoint)
    for file in [] if source is None else lock(source):
        file.close()


def run_of(checkpoint: Path) -> Path | None:
    """The folder of the run that saved a checkpoint; None of a file that lies elsewhere."""
    folder = checkpoint.resolve().parent
    return folder.parent if folder.name == "checkpoints" else None


def lock(folder: Path) -> list[BinaryIO]:
    """The open file that holds the lock on a run's folder; none where locks cannot be had.

    Raises:
        ConfigError: Another process has it.
    """
    try:
        file = (folder / LOCK).open("a+b")
    except OSError:  # nobody can write there, so that there is nothing to protect
        return []
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read(200).decode(errors="replace")
        file.close()
        if error.errno in NO_LOCKS:
            rank_zero_warn(f"{folder} is on a file system without locks: start it only once")
            return []
        raise ConfigError(
            f"ckpt_path: {folder} is in use by {holder}, which trains on it or goes on from it; "
            "wait for it, or end it"
        ) from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
    file.flush()
    return [file]


def _make(root: Path) -> Path:
    try:
        root.mkdir(parents=True, exist_ok=True)
        numbers = (int(p.name[4:]) for p in root.glob("run-*") if p.name[4:].isdigit())
        number = 1 + max(numbers, default=0)
        while True:
            try:
                (root / f"run-{number:03d}").mkdir()
                return root / f"run-{number:03d}"
            except FileExistsError:  # another run took this number meanwhile
                number += 1
    except OSError as error:
        raise ConfigError(f"{KEY}: cannot write to {root}: {error.strerror}") from error
