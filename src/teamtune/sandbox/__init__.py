"""The sandbox: runs programs that a model wrote, and tells whether they pass."""

from teamtune.sandbox.check_function import asserts_of_check
from teamtune.sandbox.pool import SandboxFailed
from teamtune.sandbox.result import SandboxResult, Status, Verdict
from teamtune.sandbox.sandbox import Sandbox

__all__ = ["Sandbox", "SandboxFailed", "SandboxResult", "Status", "Verdict", "asserts_of_check"]
