"""When so much failed that a run has to stop: errors are not wrong answers."""

from collections.abc import Collection


def refuse_failures(share: float, limit: float, reasons: Collection[str]) -> None:
    """Raises RuntimeError where a larger share than allowed of the candidates failed.

    Args:
        share: Of all candidates of a step or an evaluation.
        limit: `rollout.max_failed`.
        reasons: Why they did, as far as this rank knows.
    """
    if share > limit:
        raise RuntimeError(
            f"{share:.0%} of the candidates failed, more than "
            f"rollout.max_failed = {limit:.0%}: {'; '.join(sorted(reasons)[:3])}"
        )


def refuse_too_long(share: float) -> None:
    """Raises RuntimeError where not one task could be evaluated."""
    if share == 1:
        raise RuntimeError(
            "no task could be evaluated: every prompt and rollout.sampling.max_tokens exceed "
            "the context"
        )
