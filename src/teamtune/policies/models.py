"""What is wrong with the models of a team, known before anything is written."""

from collections.abc import Mapping

from teamtune.errors import ConfigError
from teamtune.policies.policy import Policy


def check_models(policies: Mapping[str, Policy]) -> None:
    """Raises ConfigError, with the key, for a model that is not there or cannot be used."""
    for name, policy in policies.items():
        try:
            policy.check()
        except ConfigError as error:
            raise ConfigError(f"model.policies.{name}.init_args.{error}") from error
