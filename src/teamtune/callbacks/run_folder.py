"""Every run writes to a folder of its own, so that nothing already written is overwritten."""

from pathlib import Path

import lightning as L


def new_run_folder(trainer: L.Trainer) -> Path:
    """`<default_root_dir>/run-NNN` with the first free number, made on rank zero, known to all."""
    folder = None
    if trainer.is_global_zero:
        root = Path(trainer.default_root_dir)
        root.mkdir(parents=True, exist_ok=True)
        number = 1 + max(
            (int(p.name[4:]) for p in root.glob("run-*") if p.name[4:].isdigit()), default=0
        )
        while folder is None:
            candidate = root / f"run-{number:03d}"
            try:
                candidate.mkdir()
                folder = candidate
            except FileExistsError:  # another run took this number meanwhile
                number += 1
    return Path(trainer.strategy.broadcast(str(folder)))
