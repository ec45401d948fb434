"""Histories that an earlier release exported, or that a cluster holds of it, replay with the tree of today."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from semel.engines.temporal.inside.classes import class_of
from semel.engines.temporal.replay import replay
from semel.engines.temporal.sandbox import runner
from tests.stored import shop
from tests.stored.kept import KEPT, Kept
from tests.stored.record import NAMESPACE

ON_A_CLUSTER = [
    pytest.param(one, id=f"{kept.name}-{name.replace(' ', '-')}")
    for kept in KEPT
    for name, one in kept.histories("temporal").items()
    if not one["workflow_id"].startswith("task:")
]
"""Workflows and entities; what a task does to its cluster is not its code's to say."""


def history(one: dict[str, Any]) -> WorkflowHistory:
    return WorkflowHistory.from_json(one["workflow_id"], one["history"])


@pytest.mark.parametrize("file", ["exports", "temporal-exports"])
def test_exported_histories_replay_anywhere(kept: Kept, file: str) -> None:
    texts = kept.histories(file)
    assert len(texts) > 15
    replayed = {name: shop.app.replay_history(json.dumps(text)) for name, text in texts.items()}
    assert {name: one.error for name, one in replayed.items() if not one.ok} == {}
    kinds = {text["kind"] for text in texts.values()}
    assert kinds == {"workflow", "entity"}


@pytest.mark.slow
async def test_the_replayer_of_the_sdk_takes_them_with_todays_classes(kept: Kept) -> None:
    registry = shop.app.tasks
    replayer = Replayer(
        workflows=[class_of(registry, one, shop.app.settings) for one in registry],
        workflow_runner=runner(registry, DataConverter.default),
        namespace=NAMESPACE,
    )
    found = kept.histories("temporal")

    async def histories() -> AsyncIterator[WorkflowHistory]:
        for one in found.values():
            yield history(one)

    results = await replayer.replay_workflows(histories(), raise_on_replay_failure=False)
    assert results.replay_failures == {}
    assert {name.split(" ")[0] for name in found} >= {"process", "rounds", "saga", "draft", "Account", "charge"}


@pytest.mark.parametrize("one", ON_A_CLUSTER)
async def test_nothing_else_goes_out_to_the_cluster(one: dict[str, Any]) -> None:
    again = await replay(history(one), shop.app.tasks, shop.app.settings, NAMESPACE)
    assert again.told.ok, again.told
