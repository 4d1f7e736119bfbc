"""What is wrong with the models of a team, known before anything is written."""

from collections.abc import Mapping
from pathlib import Path

from teamtune.errors import ConfigError
from teamtune.inference import HFChat
from teamtune.policies.policy import Policy


def check_models(policies: Mapping[str, Policy]) -> None:
    """Raises ConfigError, with the key, for a model that is not there or cannot be trained."""
    for name, policy in policies.items():
        where = f"model.policies.{name}.init_args"
        if isinstance(policy.source, str):
            _check_folder(policy.source, where)
        try:
            policy.check()
        except ConfigError as error:
            raise ConfigError(f"{where}.{error}") from error


def _check_folder(model: str, where: str) -> None:
    if _names_no_folder(model):
        raise ConfigError(f"{where}.model: cannot load {model!r}: no such folder")
    try:
        HFChat(model)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from error
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{where}.model: cannot load {model!r}: {reason}") from error


def _names_no_folder(model: str) -> bool:
    """Whether it is the path of a folder that is not there, by its look; the hub is not asked."""
    path = Path(model)
    looks_local = model.startswith((".", "/")) or (len(path.parts) > 1 and path.parent.is_dir())
    return looks_local and not path.is_dir()
