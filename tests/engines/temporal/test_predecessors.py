"""The requests before the holder of a key are carried along: found without clocks, and without reading each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from semel.engine.ids import new_id
from semel.engines.temporal import start
from semel.engines.temporal.executions import Reader, Seen
from semel.engines.temporal.memo import MEMO, ExecutionMemo
from semel.engines.temporal.start import ALWAYS, MOST_PAGES, MOST_TAGS, find_sent, successor_card


class Chain(Reader):
    """Executions under one key, without a cluster."""

    def __init__(self) -> None:
        self.runs: dict[str, Seen] = {}
        self.reads = 0

    def add(self, *, tags: bool = True) -> str:
        """One more execution; the request that it came of. Without `tags`: as older releases began it."""
        asked = new_id()
        card = ExecutionMemo("task", "charge", "00", "k", asked=asked)
        if self.runs:
            last = self.newest
            card = successor_card(card, last.card, last.id, 0)
            if not tags:
                card = msgspec.structs.replace(card, earlier="", beyond=None)
        run = f"run-{len(self.runs)}"
        info = WorkflowExecutionInfo(execution=WorkflowExecution(workflow_id="task:k", run_id=run))
        self.runs[run] = Seen(info, {MEMO: msgspec.to_builtins(card)}, None, timedelta(0))
        return asked

    @property
    def newest(self) -> Seen:
        return self.runs[next(reversed(self.runs))]

    async def describe(self, id: str, run: str = "") -> Seen | None:
        self.reads += 1
        return self.runs.get(run)

    async def query(self, query: str) -> AsyncIterator[Seen]:
        assert query == "WorkflowId = 'task:k'"
        for seen in list(self.runs.values()):
            yield seen

    async def find(self, request: str) -> Any:
        found = await find_sent(self, self.newest, request, MOST_PAGES)
        return None if found is None else found.info.execution.run_id


async def test_each_request_of_a_long_chain_is_found() -> None:
    chain = Chain()
    asked = [chain.add() for _ in range(2 * MOST_TAGS + 50)]
    for number in (0, 1, MOST_TAGS - 1, MOST_TAGS, MOST_TAGS + 1, 2 * MOST_TAGS + 1, len(asked) - 2, len(asked) - 1):
        assert await chain.find(asked[number]) == f"run-{number}"


async def test_the_last_ones_are_always_known_by_the_holder_alone() -> None:
    chain = Chain()
    asked = [chain.add() for _ in range(MOST_TAGS)]
    for _ in range(4):  # a new page begins meanwhile
        asked.append(chain.add())
        for number in (len(asked) - 1, len(asked) - 2, len(asked) - 1 - ALWAYS):
            found = await find_sent(chain, chain.newest, asked[number])
            assert found is not None
            assert found.info.execution.run_id == f"run-{number}"


@pytest.mark.parametrize(("length", "reads"), [(1, 0), (2, 0), (MOST_TAGS + 1, 0), (MOST_TAGS + 2, 1), (600, 2)])
async def test_a_new_request_costs_a_read_for_many_before_it(length: int, reads: int) -> None:
    chain = Chain()
    for _ in range(length):
        chain.add()
    assert await chain.find(new_id()) is None
    assert chain.reads <= reads


async def test_the_search_has_an_end() -> None:
    chain = Chain()
    first, *_ = [chain.add(tags=False) for _ in range(MOST_PAGES + 2)]
    assert await chain.find(first) is None
    assert chain.reads == MOST_PAGES


async def test_executions_of_older_releases_are_read_one_by_one() -> None:
    chain = Chain()
    asked = [chain.add(tags=False) for _ in range(4)] + [chain.add() for _ in range(3)]
    assert [await chain.find(request) for request in asked] == list(chain.runs)
    chain.reads = 0
    assert await chain.find(new_id()) is None
    assert chain.reads == 3


async def test_one_is_found_behind_another_that_was_cleaned_up() -> None:
    chain = Chain()
    asked = [chain.add() for _ in range(5)]
    del chain.runs["run-2"]
    assert await chain.find(asked[1]) == "run-1"
    assert await chain.find(asked[2]) is None


async def test_a_tag_that_two_requests_share_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "tag_of", lambda request_id: "same")
    chain = Chain()
    asked = [chain.add() for _ in range(3)]
    assert await chain.find(new_id()) is None
    assert [await chain.find(request) for request in asked] == list(chain.runs)
