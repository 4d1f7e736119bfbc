"""Math (Stronger-MAS): a reasoner derives an answer, at the same time a tool role programs one.

From the second turn on both see both answers. The team's answer is the reasoner's: it has heard
what the program printed and has the last word.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from teamtune.envs.answers import boxed_of, code_of
from teamtune.envs.given import FORMAT, WORTH, Given, printed
from teamtune.envs.math.verifier import Comparison, Verifier
from teamtune.envs.prompts import folder_of
from teamtune.envs.revision import AnswerAndRevise, Marks, RevisionState
from teamtune.errors import ConfigError
from teamtune.ranges import PositiveInt
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

REASONER: Final = "reasoner"
TOOL: Final = "tool"
Role = Literal["reasoner", "tool"]

MAX_SHOWN = 500
"""Characters of an answer that agents are shown."""


class Math(AnswerAndRevise):
    r"""Problems with one answer, solved where the team's answer is that.

    The team's answer is what the reasoner has in its last `\boxed{}`; a tool that is alone answers
    for itself, by the last line that its program prints. Team reward: 1 if it is correct. The
    reasoner's own: 0.2 for a box, 0.8 if what is in it is correct; the tool's own: 0.1 its program
    parses, 0.1 it comes to its end, 0.8 if what it prints is correct. All are changes from turn to
    turn, see `AnswerAndRevise`. The agents agree where both have the same answer, right or wrong.
    An answer that is missing, or that the verifier cannot read in its time, is malformed.
    """

    def __init__(
        self,
        roles: tuple[Role, ...] = (REASONER, TOOL),
        turns: PositiveInt = 4,
        prompts: str = "chat",
        sandbox: Sandbox | None = None,
        verifier: Verifier | None = None,
    ):
        """
        Args:
            roles: Who takes part: both, or one alone, the single agent to compare with.
            turns: Most turns of an episode, T. An agent alone sees its own answer again.
            prompts: `chat`, or a folder with one Jinja template per role.
            sandbox: Where programs run; null takes the default limits.
            verifier: What compares answers; null takes the default limits.

        Raises:
            ConfigError: No role, or a sandbox where nothing runs in it.
        """
        if sandbox is not None and TOOL not in roles:
            raise ConfigError(f"sandbox: allowed with roles {list(roles)}: null (no programs run)")
        super().__init__(roles, turns, folder_of(Path(__file__).parent / "prompts", prompts))
        self.sandbox = (sandbox or Sandbox()) if TOOL in roles else None
        self.verifier = verifier or Verifier()
        self.speaker = REASONER if REASONER in roles else TOOL

    def check(self) -> None:
        if self.sandbox is not None:
            _ = self.sandbox.protection  # which has to hold
        self.verifier.check()

    def reset(self, task: Task) -> RevisionState:
        """The start of a task. Raises ValueError for a missing problem or an unreadable answer."""
        for name in ("problem", "answer"):
            if not isinstance(task.data.get(name), str) or not task.data[name].strip():
                raise ValueError(f"task {task.id}: {name!r} must be a text that is not empty")
        if not self.verifier.reads(task.data["answer"]):
            raise ValueError(
                f"task {task.id}: 'answer' is no mathematics that the verifier reads in "
                f"{self.verifier.timeout} s: {task.data['answer'][:100]!r}"
            )
        return super().reset(task)

    def describe(self, task: Task) -> Mapping[str, Any]:
        return {"problem": task.data["problem"]}

    async def judge(self, task: Task, answers: Mapping[str, str]) -> Marks:
        given: dict[str, Given] = {}
        verdicts: dict[str, Comparison] = {}
        for agent, text in answers.items():
            given[agent] = _boxed(text) if agent == REASONER else await self._printed(text)
            verdicts[agent] = await self._compare(task.data["answer"], given[agent].answer)
        told: dict[str, Any] = {agent: _told(found) for agent, found in given.items()}
        if TOOL in answers:
            told["program"] = code_of(answers[TOOL])
        return Marks(
            team=float(verdicts[self.speaker] == "equal"),
            local={a: given[a].form + WORTH * (verdicts[a] == "equal") for a in given},
            malformed=tuple(a for a in given if verdicts[a] in ("unreadable", "too slow")),
            agreed=len(given) > 1 and await self._agree(given, verdicts),
            told=told,
        )

    async def _agree(self, given: Mapping[str, Given], verdicts: Mapping[str, Comparison]) -> bool:
        """Whether both answers are the same, right or wrong."""
        if set(verdicts.values()) != {"different"}:
            return set(verdicts.values()) == {"equal"}
        return await self._compare(given[REASONER].answer, given[TOOL].answer) == "equal"

    async def _compare(self, gold: str | None, answer: str | None) -> Comparison:
        if gold is None or answer is None:
            return "unreadable"
        return await self.verifier.compare(gold, answer)

    async def _printed(self, text: str) -> Given:
        """The last line that the program in an answer prints."""
        assert self.sandbox is not None
        found = await printed(self.sandbox, text)
        last = None if found.answer is None else found.answer.split("\n")[-1].strip()
        return replace(found, answer=last)

    def sample_actions(self, state: RevisionState, agent: str) -> list[str]:
        gold = state.task.data["answer"]
        if agent == REASONER:
            return [f"It is \\boxed{{{answer}}}." for answer in (gold, "-1", "17")]
        return [f"```python\nanswer = {a!r}\nprint(answer)\n```" for a in (gold, "17", "")]


def _boxed(text: str) -> Given:
    """What is in the last box of an answer."""
    boxed = boxed_of(text)
    return Given(boxed, FORMAT) if boxed else Given(None, 0.0, "There was no answer in a box.")


def _told(found: Given) -> str:
    """An answer for the agents to see, or why there is none."""
    text = found.answer or found.trouble
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " ... (cut)"
