"""ReasoningGym: problems that a generator of reasoning-gym makes and its verifier scores.

One agent answers alone, or two side by side, as in Math: a reasoner and one who programs, or a
solver and one who checks. From the second turn on both see what came of the last one.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from teamtune.envs.answers import MAX_LENGTH, boxed_of, code_of, tagged_of
from teamtune.envs.given import FORMAT, WORTH, Given, printed
from teamtune.envs.prompts import folder_of
from teamtune.envs.reasoning_gym.library import Library, Score
from teamtune.envs.revision import AnswerAndRevise, Marks, RevisionState
from teamtune.errors import ConfigError
from teamtune.ranges import Positive, PositiveInt
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

SOLVER: Final = "solver"
CHECKER: Final = "checker"
REASONER: Final = "reasoner"
TOOL: Final = "tool"
Team = Literal["single", "reasoner_tool", "solver_checker"]
ROLES: Mapping[Team, tuple[str, ...]] = {
    "single": (SOLVER,),
    "reasoner_tool": (REASONER, TOOL),
    "solver_checker": (SOLVER, CHECKER),
}
"""Of every team, the one whose answer is the team's comes first."""

MAX_SHOWN = 1000
"""Characters of an answer, or of a checker's words, that agents are shown."""


class ReasoningGym(AnswerAndRevise):
    r"""Problems of one generator of reasoning-gym, solved where the verifier gives all of 1.

    An answer is what stands in the last `<answer>...</answer>`, else in the last `\boxed{}`, else a
    single line that says nothing else; a tool's is what its program prints. The team's answer is
    the solver's or the reasoner's. Team reward: 1 if the verifier's score of it is 1, and nothing
    for less. An agent's own: 0.2 for an answer that can be read (the tool: 0.1 its program parses,
    0.1 it comes to its end) and 0.8 times the score of its own answer, which for some generators
    has values between. All are changes from turn to turn, see `AnswerAndRevise`. The agents agree
    where both give the same answer, right or wrong. An answer that is missing, that the verifier
    cannot read, or not in its time, is malformed.
    """

    def __init__(
        self,
        dataset: str,
        options: dict[str, Any] | None = None,
        team: Team = "single",
        turns: PositiveInt = 4,
        prompts: str = "chat",
        timeout: Positive = 5.0,
        workers: PositiveInt | None = None,
        sandbox: Sandbox | None = None,
    ):
        """
        Args:
            dataset: The generator's name, such as `chain_sum`.
            options: What it takes beside `seed` and `size`; null leaves all at its defaults.
            team: `single`: a solver alone; `reasoner_tool`: a reasoner and a tool role, which
                writes Python; `solver_checker`: a solver and a checker, which answers as well, and
                whose remarks the solver sees.
            turns: Most turns of an episode, T. An agent alone sees its own answer again.
            prompts: `chat`, `compact` (few words, for tiny models), or a folder with one Jinja
                template per role.
            timeout: Seconds of processor time in which the verifier has to score an answer.
            workers: Answers that are scored at the same time; null is one per CPU, 8 at most.
            sandbox: Where the tool's programs run; null takes the default limits.

        Raises:
            ConfigError: A sandbox where nothing runs in it.
        """
        roles = ROLES[team]
        if sandbox is not None and TOOL not in roles:
            raise ConfigError(f"sandbox: allowed with team {team}: null (no programs run)")
        super().__init__(roles, turns, folder_of(Path(__file__).parent / "prompts", prompts))
        self.sandbox = (sandbox or Sandbox()) if TOOL in roles else None
        self.dataset = dataset
        self.library = Library(dataset, options or {}, timeout, workers)

    def check(self) -> None:
        if self.sandbox is not None:
            _ = self.sandbox.protection  # which has to hold
        self.library.make(0)

    def task(self, seed: int) -> Task:
        """The problem that `seed` stands for; see `Library.make` for what it raises.

        Its data are texts: `dataset`, `question`, `answer` (None where the verifier needs none)
        and `metadata`, a Python literal for the verifier.
        """
        data = {"dataset": self.dataset, **self.library.make(seed)}
        return Task(f"reasoning-gym-{self.dataset}-{seed}", data)

    def reset(self, task: Task) -> RevisionState:
        """The start of a task. Raises ValueError for one of another generator, or broken data."""
        if task.data.get("dataset") != self.dataset:
            got = task.data.get("dataset")
            raise ValueError(f"task {task.id}: 'dataset' must be {self.dataset!r}, got {got!r}")
        for name in ("question", "metadata"):
            if not isinstance(task.data.get(name), str) or not task.data[name].strip():
                raise ValueError(f"task {task.id}: {name!r} must be a text that is not empty")
        if not isinstance(task.data.get("answer"), str | None):
            raise ValueError(f"task {task.id}: 'answer' must be a text, or null")
        return super().reset(task)

    def describe(self, task: Task) -> Mapping[str, Any]:
        return {"question": task.data["question"], "agents": self.agents}

    async def judge(self, task: Task, answers: Mapping[str, str]) -> Marks:
        given: dict[str, Given] = {}
        scores: dict[str, Score] = {}
        for agent, text in answers.items():
            given[agent] = await self._printed(text) if agent == TOOL else _said(text)
            scores[agent] = await self._score(task, given[agent])
        told: dict[str, Any] = {a: _told(given[a].answer, scores[a].trouble) for a in given}
        if TOOL in answers:
            told["program"] = code_of(answers[TOOL])
        if CHECKER in answers:
            told["remarks"] = _told(answers[CHECKER], "")
        return Marks(
            team=float(scores[self.agents[0]].worth == 1.0),
            local={a: given[a].form + WORTH * scores[a].worth for a in given},
            malformed=tuple(a for a in given if scores[a].trouble),
            agreed=_agree([found.answer for found in given.values()]),
            told=told,
        )

    async def _score(self, task: Task, found: Given) -> Score:
        if found.answer is None:
            return Score(trouble=found.trouble)
        problem = {name: task.data[name] for name in ("question", "answer", "metadata")}
        return await self.library.score(problem, found.answer)

    async def _printed(self, text: str) -> Given:
        """What the program in an answer prints."""
        assert self.sandbox is not None
        found = await printed(self.sandbox, text)
        if len(found.answer or "") > MAX_LENGTH:
            return replace(found, answer=None, trouble="The program printed too much.")
        return found

    def sample_actions(self, state: RevisionState, agent: str) -> list[str]:
        gold = state.task.data["answer"] or "0"
        answers = [gold, f"{gold} or so", "17"]
        if agent == TOOL:
            return [f"```python\nanswer = {a!r}\nprint(answer)\n```" for a in answers]
        return [f"It is <answer>{answer}</answer>." for answer in answers]


def _said(text: str) -> Given:
    """The answer in a text."""
    found = tagged_of(text, "answer")
    if found is None and "<answer>" not in text:
        line = text.strip()
        found = boxed_of(text) or (line if "\n" not in line else None)
    return Given(found, FORMAT) if found else Given(None, 0.0, "There was no answer.")


def _agree(answers: list[str | None]) -> bool:
    """Whether two agents give the same answer, spaces aside."""
    words = [None if answer is None else answer.split() for answer in answers]
    return len(words) == 2 and words[0] is not None and words[0] == words[1]


def _told(text: str | None, trouble: str) -> str:
    """A text for the agents to see, and what is wrong with it."""
    shown = text or ""
    shown = shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + " ... (cut)"
    return "\n".join(part for part in (shown, trouble) if part)
