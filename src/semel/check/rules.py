"""Every rule of `semel check`, in one table: docs, messages, SARIF and tests derive from it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that a workflow must not do. `id` and `name` never change: people write them into their code.

    A message is built as "{the code} {does}; {why}; instead: {semel or temporal}".
    """

    id: str
    name: str
    does: str
    why: str
    semel: str
    temporal: str

    @property
    def label(self) -> str:
        """Both names, as messages show them."""
        return f"{self.id} {self.name}"

    @property
    def allowable(self) -> bool:
        """Whether a comment may silence it; the rules about reading files and about comments cannot be."""
        return not self.id.startswith("D9")

    @property
    def warns(self) -> bool:
        """Whether it only warns: reading cannot tell that a receiver recognises a repeated call by other means."""
        return self.id == "D18"


_IN_A_TASK = "do it in a task (ctx.execute_task) or a recorded step (ctx.step)"
_IN_AN_ACTIVITY = "do it in an activity (workflow.execute_activity)"

WALL_CLOCK = Rule(
    "D01",
    "wall-clock",
    "reads the clock",
    "a replay reads another time and may take another way",
    "ctx.now()",
    "workflow.now()",
)
RANDOMNESS = Rule(
    "D02",
    "randomness",
    "rolls dice",
    "a replay gets other numbers",
    "ctx.random, or random.Random(seed)",
    "workflow.random()",
)
UNIQUE_ID = Rule(
    "D03",
    "unique-id",
    "makes an id that is new each time",
    "a replay makes another one",
    "ctx.uuid4(), or uuid.uuid5 of something stable",
    "workflow.uuid4(), or uuid.uuid5 of something stable",
)
BLOCKING_SLEEP = Rule(
    "D04",
    "blocking-sleep",
    "blocks the whole worker",
    "it is forgotten at a crash and slept again at every replay",
    "await asyncio.sleep() or ctx.sleep(), which are durable",
    "await asyncio.sleep(), which is durable",
)
NETWORK = Rule(
    "D05",
    "network",
    "talks to the network",
    "it happens again at every replay, with another answer",
    _IN_A_TASK,
    _IN_AN_ACTIVITY,
)
FILES = Rule(
    "D06",
    "files",
    "touches files",
    "another machine or a later replay finds other files",
    _IN_A_TASK,
    _IN_AN_ACTIVITY,
)
SUBPROCESS = Rule(
    "D07",
    "subprocess",
    "starts or signals a process",
    "it happens again at every replay",
    _IN_A_TASK,
    _IN_AN_ACTIVITY,
)
THREADS = Rule(
    "D08",
    "threads",
    "leaves the workflow's own loop",
    "what other threads and processes do has no fixed order",
    "asyncio.gather or asyncio.TaskGroup; blocking work belongs into a task",
    "asyncio.gather or asyncio.TaskGroup; blocking work belongs into an activity",
)
ENVIRONMENT = Rule(
    "D09",
    "environment",
    "reads the process's surroundings",
    "a replay on another machine or after a deploy differs",
    "pass configuration as workflow input",
    "pass configuration as workflow input",
)
DATABASE = Rule(
    "D10",
    "database",
    "uses a database",
    "it happens again at every replay, and finds other rows",
    "ctx.transaction(fn), or a task (ctx.execute_task)",
    _IN_AN_ACTIVITY,
)
SET_ORDER = Rule(
    "D11",
    "set-order",
    "gives an order that differs between processes",
    "commands are replayed in another order",
    "sorted(...), or keep a list or a dict",
    "sorted(...), a list or a dict; workflow.wait, workflow.as_completed",
)
BROAD_EXCEPT = Rule(
    "D12",
    "broad-except",
    "swallows cancellation and the engine's own signals",
    "the workflow can no longer be stopped or suspended",
    "except Exception, try/finally, or raise again",
    "except Exception, try/finally, or raise again",
)
GLOBAL_STATE = Rule(
    "D13",
    "global-state",
    "changes what outlives the run",
    "other runs see it, and a replay starts from it",
    "keep it in local variables, or on the entity",
    "keep it on self",
)
CONSOLE = Rule(
    "D14",
    "console",
    "uses the console",
    "it happens again at every replay",
    "logging, or ctx.publish for those who watch",
    "workflow.logger",
)
OBJECT_IDENTITY = Rule(
    "D15",
    "object-identity",
    "depends on memory and on the hash seed",
    "another process gets another number",
    "compare and sort by a field; hashlib for a digest",
    "compare and sort by a field; hashlib for a digest",
)
DIRECT_CALL = Rule(
    "D16",
    "direct-call",
    "is a task run in place",
    "nothing is recorded, so every replay runs it again",
    "await ctx.execute_task(fn, ...)",
    "await workflow.execute_activity(fn, ...)",
)
SCHEDULE_CHANGE = Rule(
    "D17",
    "schedule-change",
    "changes or triggers a schedule",
    "tasks and workflows run what is scheduled, and a call that changes it is refused while they run",
    "do it where your program answers requests, or with semel apply and semel schedules",
    "do it where your program answers requests, or with semel apply and semel schedules",
)
UNKEYED_EFFECT = Rule(
    "D18",
    "unkeyed-effect",
    "changes something outside without an effect key",
    "a task that is tried again, or whose worker dies after the call, does it twice",
    "semel.effect_key(name) as the idempotency key of the call",
    "an idempotency key made of the workflow id and the activity",
)
UNREADABLE = Rule(
    "D90",
    "unreadable",
    "cannot be read",
    "what cannot be read cannot be checked",
    "mend the file, or leave it out of the paths",
    "mend the file, or leave it out of the paths",
)
BAD_ALLOW = Rule(
    "D91",
    "bad-allow",
    "silences nothing",
    "an exception needs a rule that exists and a reason for the next reader",
    "# semel: allow[RULE] reason",
    "# semel: allow[RULE] reason",
)
UNUSED_ALLOW = Rule(
    "D92",
    "unused-allow",
    "is not needed",
    "it would hide what somebody adds here later",
    "delete the comment",
    "delete the comment",
)

RULES: tuple[Rule, ...] = (
    WALL_CLOCK,
    RANDOMNESS,
    UNIQUE_ID,
    BLOCKING_SLEEP,
    NETWORK,
    FILES,
    SUBPROCESS,
    THREADS,
    ENVIRONMENT,
    DATABASE,
    SET_ORDER,
    BROAD_EXCEPT,
    GLOBAL_STATE,
    CONSOLE,
    OBJECT_IDENTITY,
    DIRECT_CALL,
    SCHEDULE_CHANGE,
    UNKEYED_EFFECT,
    UNREADABLE,
    BAD_ALLOW,
    UNUSED_ALLOW,
)

_BY_WORD = {word.lower(): rule for rule in RULES for word in (rule.id, rule.name)}


def rule_named(word: str) -> Rule | None:
    """A rule by id or by name, in any case."""
    return _BY_WORD.get(word.strip().lower())


def near(word: str) -> str | None:
    """The rule name that was probably meant."""
    found = difflib.get_close_matches(word.strip().lower(), [rule.name for rule in RULES if rule.allowable], 1)
    return found[0] if found else None
