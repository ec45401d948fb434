"""An expense that someone has to approve: reminders, a deadline, a deputy, and answers that arrive twice or too late.

python examples/approval.py
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

from rich import print

import semel

app = semel.App(namespace="approval")
mails: list[tuple[str, str]] = []
"""Stands in for a mail server: (to, text)."""

DAY = 86_400.0


@dataclass
class Expense:
    id: str
    cents: int
    boss: str
    deputy: str
    remind_every: float = DAY
    patience: float = 3 * DAY
    """Seconds that each of the two has to answer."""


@dataclass
class Answer:
    by: str
    approved: bool


@dataclass
class Outcome:
    approved: bool
    by: str | None = None


@app.task
async def mail(to: str, text: str) -> None:
    mails.append((to, text))


@app.workflow
async def approve(ctx: semel.Context, expense: Expense) -> Outcome:
    """Ask the boss, then the deputy. Silence means no."""
    for person in (expense.boss, expense.deputy):
        ctx.publish("waits-for", person)
        try:
            async with asyncio.timeout(expense.patience):
                answer = await ask(ctx, expense, person)
        except TimeoutError:
            continue
        return Outcome(answer.approved, answer.by)
    return Outcome(approved=False)


async def ask(ctx: semel.Context, expense: Expense, person: str) -> Answer:
    """Return the first answer from someone who may give one, and send a reminder after each interval without one."""
    number = 0
    while True:
        number += 1
        what = "please approve" if number == 1 else f"reminder {number - 1}:"
        await ctx.execute_task(mail, person, f"{what} {expense.id}", task_id=f"mail:{expense.id}:{person}:{number}")
        try:
            async with asyncio.timeout(expense.remind_every):
                while True:
                    answer: Answer = await ctx.wait_signal("answer", type=Answer)
                    if answer.by in (expense.boss, expense.deputy):
                        return answer
        except TimeoutError:
            continue


async def submit(expense: Expense) -> semel.Handle[Outcome]:
    """What the web form calls."""
    return await app.start_workflow(approve.call(expense), workflow_id=f"approve:{expense.id}")


async def answer(expense_id: str, by: str, approved: bool, click: str) -> str:
    """What the link in the mail calls; `click` is the same when it is clicked twice."""
    handle = await app.find(f"approve:{expense_id}", kind="workflow")
    if handle is None:
        return "no such expense"
    try:
        await handle.signal("answer", asdict(Answer(by, approved)), dedup_key=click)
    except semel.WorkflowEnded:
        return "too late"
    return "thank you"


async def main() -> None:
    async with app, app.worker():
        quick = await submit(Expense("e-1", 4_900, "eve", "dan"))
        print(await answer("e-1", "eve", approved=True, click="c-1"), await quick.result("1m"))
        print(await answer("e-1", "eve", approved=True, click="c-1"))

        silent = await submit(Expense("e-2", 9_900, "eve", "dan", remind_every=0.2, patience=0.5))
        print(await silent.result("1m"))
    for to, text in mails:
        print(to, text)


if __name__ == "__main__":
    asyncio.run(main())
