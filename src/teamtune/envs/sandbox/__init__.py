"""The sandbox: runs programs that a model wrote, and tells whether they pass."""

from teamtune.envs.sandbox.check_function import asserts_of_check
from teamtune.envs.sandbox.result import SandboxResult, Status, Verdict
from teamtune.envs.sandbox.sandbox import Sandbox, SandboxFailed

__all__ = ["Sandbox", "SandboxFailed", "SandboxResult", "Status", "Verdict", "asserts_of_check"]
