"""Role prompts are Jinja templates, so that a configuration can change what an agent is told.

They run in Jinja's sandbox: a template reads what it is given, and changes or calls nothing else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from teamtune.errors import ConfigError

SEPARATOR = "\n---\n"


def folder_of(own: Path, style: str) -> Path:
    """The folder of a style: one of an environment's `own`, or any that `style` is the path of."""
    return own / style if (own / style).is_dir() else Path(style)


class Prompts:
    """The templates of one environment, one per role: `<folder>/<role>.jinja`.

    A template renders one user message; what should be a system message goes before a line that
    holds only `---`.
    """

    def __init__(self, folder: Path, roles: tuple[str, ...]):
        """
        Args:
            folder: Where the templates lie.
            roles: The roles, each with a file `<role>.jinja`, or `proposer.jinja` for `proposer_1`
                and so on, or for all of them `all.jinja`.

        Raises:
            ConfigError: A role has no template, or a template does not parse.
        """
        loader = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            loader=jinja2.FileSystemLoader(str(folder)),
        )
        self._templates = {}
        self._has_system = {}
        for role in roles:
            kinds = (role, role.rstrip("_0123456789"), "all")
            names = [f"{k}.jinja" for k in kinds if (folder / f"{k}.jinja").is_file()]
            if not names:
                raise ConfigError(f"no prompt for role {role!r}: {folder}/{role}.jinja is missing")
            name = names[0]
            try:
                self._templates[role] = loader.get_template(name)
                self._has_system[role] = SEPARATOR in (folder / name).read_text("utf-8")
            except jinja2.TemplateSyntaxError as error:
                raise ConfigError(f"{folder / name}:{error.lineno}: {error.message}") from error

    def render(self, role: str, values: Mapping[str, Any]) -> list[dict[str, str]]:
        """The messages for `role`; `values` are the template's variables, `role` among them."""
        text = self._templates[role].render(values, role=role).strip()
        if not self._has_system[role]:
            return [{"role": "user", "content": text}]
        system, _, user = text.partition(SEPARATOR)
        return [
            {"role": "system", "content": system.strip()},
            {"role": "user", "content": user.strip()},
        ]
