"""The process that compares mathematics. A script: it imports nothing of ours, and reads requests
as lines of JSON, `[gold, answer]`; each answer is `[whether gold parses, ... answer ..., equal]`.

A request that takes too much processor time is ended by the kernel's alarm, and this process with
it, whatever it is in the middle of: a tower of powers is one long call into C. That time is the
same on a busy machine; a second alarm, by the clock, is for what waits for ever.
"""

import json
import logging
import math
import resource
import signal
import sys

PATIENCE = 20
"""Seconds by the clock for one of processor time."""


def main() -> None:
    seconds, megabytes = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    from math_verify import LatexExtractionConfig, parse, verify

    def read(text: str) -> list:
        config = [LatexExtractionConfig(boxed_match_priority=0)]
        return parse(f"\\boxed{{{text}}}", config, "no_fallback", parsing_timeout=None)

    def close(gold: list, answer: list) -> bool:
        """Whether both are numbers that differ by 1e-6 at most."""
        try:
            return math.isclose(float(gold[0]), float(answer[0]), rel_tol=0.0, abs_tol=1e-6)
        except (TypeError, ValueError, AttributeError, OverflowError):
            return False

    verify(read("\\frac{1}{2}"), read("\\pi"), timeout_seconds=None)  # builds tables, once
    print("ready", flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
        try:
            gold, answer = map(read, json.loads(line))
            equal = bool(gold and answer) and (
                verify(gold, answer, timeout_seconds=None) or close(gold, answer)
            )
            found = [bool(gold), bool(answer), equal]
        except (MemoryError, RecursionError):
            found = [True, False, False]
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
