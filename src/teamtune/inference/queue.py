"""Engines that generate in this process: one asyncio task makes the steps for all requests at once.

The task lives on the running event loop for as long as there are requests, so a new loop per call
and one loop that lasts are alike. Requests whose askers are gone leave with the next step.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from teamtune.inference.engine import Completion, RolloutEngine, Sampling


@dataclass(eq=False)
class Request:
    """What was asked of an engine, and the future that its answers go to."""

    prompt_ids: list[int]
    n: int
    sampling: Sampling
    seed: int
    done: "asyncio.Future[list[Completion]]"
    answers: dict[int, Completion] = field(default_factory=dict)
    """By sample, as far as they are finished."""

    @property
    def over(self) -> bool:
        """Whether nobody waits any longer: it is answered, has failed, or its asker is gone."""
        return self.done.done() or self.done.get_loop().is_closed()

    def answer(self, samples: Iterable[int], completion: Completion) -> None:
        """The same completion for `samples`; with the last one whoever asked gets all of them."""
        self.answers.update(dict.fromkeys(samples, completion))
        if len(self.answers) == self.n and not self.over:
            self.done.set_result([self.answers[k] for k in range(self.n)])


class QueuedEngine(RolloutEngine):
    """Requests wait in a queue; a subclass takes from it and generates token by token."""

    def __init__(self) -> None:
        self._waiting: list[Request] = []
        self._open: list[Request] = []
        """All that may be without an answer, the waiting ones included."""
        self._driver: asyncio.Task[None] | None = None

    @abstractmethod
    def _step(self, waiting: list[Request]) -> bool:
        """Takes what there is room for out of `waiting`, and generates a token for all it took.

        Returns:
            Whether anything runs still.
        """

    @abstractmethod
    def _drop(self) -> None:
        """Forgets those of the requests it took that are over."""

    async def generate(
        self,
        prompt_ids: Sequence[int],
        n: int = 1,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> list[Completion]:
        sampling = sampling or self.sampling
        if len(prompt_ids) + sampling.max_tokens > self.context_length or not prompt_ids:
            return [Completion((), (), "", "too_long", self.version)] * n
        loop = asyncio.get_running_loop()
        if self._driver is None or self._driver.done() or self._driver.get_loop() is not loop:
            self._abandon()
            self._driver = loop.create_task(self._drive())
        drawn = 1 if sampling.temperature == 0 else n  # greedy answers are all the same
        request = Request(list(prompt_ids), drawn, sampling, seed, loop.create_future())
        self._waiting.append(request)
        self._open.append(request)
        return (await request.done) * (n // drawn)

    async def _drive(self) -> None:
        """Steps until nothing runs or waits. A failure reaches all that wait for an answer."""
        try:
            while self._driver is asyncio.current_task():  # another loop may have its own since
                known = -1
                while known != len(self._waiting):
                    known = len(self._waiting)
                    await asyncio.sleep(0)
                self._open = [r for r in self._open if not r.over]
                self._waiting = [r for r in self._waiting if not r.over]
                self._drop()
                if not self._step(self._waiting):
                    return
        except BaseException as error:
            self._abandon(error)
            if not isinstance(error, Exception):
                raise

    def _abandon(self, error: BaseException | None = None) -> None:
        """Ends all that is unanswered, with the error where it is one of generating."""
        for request in self._open:
            if request.over:
                continue
            if isinstance(error, Exception):
                request.done.set_exception(error)
            else:
                request.done.cancel()
        self._open, self._waiting = [], []
        self._drop()
