"""Signals end a run as an exception does: callbacks and loggers get to close it."""

import logging
import signal
import sys
import warnings
from types import FrameType
from typing import Any

import lightning as L


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does."""


class Interrupts(L.Callback):
    """Turns SIGINT and SIGTERM into an exception, once; then the run is left to close in peace."""

    CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
    AGAIN = 3.0
    """Seconds after which the exception is raised again: code that Python calls where no exception
    can leave, such as `__del__`, swallows it."""

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code once a signal has come."""
        self.closing = False
        for number in (*self.CODES, signal.SIGALRM):
            signal.signal(number, self._handle)
        report = sys.unraisablehook

        def quiet(found: Any) -> None:
            if not isinstance(found.exc_value, KeyboardInterrupt):  # a swallowed one comes again
                report(found)

        sys.unraisablehook = quiet

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.closing:
            return
        self.code = self.CODES.get(signal.Signals(number), self.code)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it reports what was not awaited
        warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
        signal.setitimer(signal.ITIMER_REAL, self.AGAIN)
        raise Terminated if self.code == self.CODES[signal.SIGTERM] else KeyboardInterrupt

    def close(self) -> None:
        """From here on signals are ignored."""
        self.closing = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self.close()
