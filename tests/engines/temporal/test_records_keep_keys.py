"""A key outlives the cluster's memory: its run reserves it, settles it, and it is forgotten when its window is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from semel.contract.decision import Admit, Reason, Refuse, Replay, Request, Reuse, decide
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from tests.engines.temporal.archive import end, opened, run
from tests.world import World

OTHER = b"g" * 16


async def test_a_run_that_ended_is_found_by_its_key(world: World) -> None:
    async with opened(world) as records:
        assert await records.prior("task", "k") is None
        holder = await records.reserve(run("r1@task:k", generation=2, previous="r0@task:k", input=b'{"cents":1}'))
        assert (holder.id, holder.status, holder.generation) == ("r1@task:k", Status.RUNNING, 2)
        assert await records.settle(end(world, "r1@task:k", output=b'"paid"', attempt=3))
        prior = await records.prior("task", "k")
        assert prior is not None
        assert (prior.id, prior.status, prior.generation) == ("r1@task:k", Status.COMPLETED, 2)
        assert prior.window_ends_at is not None
        assert abs(prior.window_ends_at - world.now() - timedelta(days=90)) < timedelta(minutes=1)
        outcome = await records.outcome("r1@task:k")
        assert outcome is not None
        assert (outcome.status, outcome.output, outcome.expired) == (Status.COMPLETED, b'"paid"', False)
        found = await records.find("task", "k")
        assert found == await records.get("r1@task:k")
        assert found is not None
        assert (found.attempt, found.previous_id, found.window) == (3, "r0@task:k", timedelta(days=90))


async def test_what_lives_is_the_clusters_to_tell_of(world: World) -> None:
    async with opened(world) as records:
        await records.reserve(run("r1"))
        assert await records.prior("task", "k") is None
        assert await records.get("r1") is None
        assert await records.outcome("r1") is None


async def test_the_same_request_is_replayed_and_another_one_refused_with_what_differs(world: World) -> None:
    async with opened(world) as records:
        await records.reserve(run("r1", input=b'{"cents":1}'))
        await records.settle(end(world, "r1", output=b"1"))
        prior = await records.prior("task", "k")
        same = decide(prior, Request("charge", b"f" * 16, Reuse.FAILED_ONLY), world.now())
        other = decide(prior, Request("charge", OTHER, Reuse.FAILED_ONLY), world.now())
        assert isinstance(same, Replay)
        assert isinstance(other, Refuse)
        assert other.reason is Reason.INPUT_DIFFERS
        assert await records.input_of("r1") == b'{"cents":1}'


async def test_a_run_that_should_not_have_been_started_learns_who_did_the_work(world: World) -> None:
    async with opened(world) as records:
        await records.reserve(run("r1"))
        await records.settle(end(world, "r1", output=b"1"))
        assert (await records.reserve(run("r2"))).id == "r1"
        assert (await records.reserve(run("r2", fingerprint=OTHER))).id == "r1"
        assert not await records.settle(end(world, "r2", output=b"2"))
        outcome = await records.outcome("r1")
        assert outcome is not None
        assert outcome.output == b"1"


async def test_a_key_goes_on_to_the_run_that_was_decided_to_follow(world: World) -> None:
    async with opened(world) as records:
        await records.reserve(run("r1"))
        await records.settle(end(world, "r1"))
        assert (await records.reserve(run("r2", previous="r1", generation=1))).id == "r2"
        assert not await records.settle(end(world, "r1", Status.FAILED))  # late, and no longer its own


async def test_a_failure_frees_its_key_and_is_kept_as_data(world: World) -> None:
    async with opened(world) as records:
        await records.reserve(run("r1"))
        await records.settle(end(world, "r1", Status.FAILED, error=ErrorInfo("ValueError", "no")))
        outcome = await records.outcome("r1")
        assert outcome is not None
        assert outcome.error == ErrorInfo("ValueError", "no")
        assert (await records.reserve(run("r2", reuse=Reuse.REJECT))).id == "r1"
        assert (await records.reserve(run("r2", fingerprint=OTHER))).id == "r2"


async def test_a_holder_that_never_told_its_end_is_followed(world: World) -> None:
    async with opened(world) as records:
        await records.reserve(run("r1"))
        assert (await records.reserve(run("r2"))).id == "r2"
        assert not await records.settle(end(world, "r1"))


async def test_saying_it_twice_changes_nothing(world: World) -> None:
    async with opened(world) as records:
        first = await records.reserve(run("r1"))
        assert await records.reserve(run("r1")) == first
        assert await records.settle(end(world, "r1", output=b"1"))
        assert await records.settle(end(world, "r1", Status.FAILED, output=b"2"))
        assert (await records.reserve(run("r1"))).status is Status.COMPLETED
        outcome = await records.outcome("r1")
        assert outcome is not None
        assert (outcome.status, outcome.output) == (Status.COMPLETED, b"1")


async def test_of_many_that_reserve_at_once_none_is_lost(world: World) -> None:
    async with opened(world) as one, opened(world) as two:
        holders = await asyncio.gather(*((one, two)[n % 2].reserve(run(f"r{n}")) for n in range(80)))
        assert {holder.id for holder in holders} == {f"r{n}" for n in range(80)}  # none has ended: each was followed
        assert await world.count("semel_record_key") == 1


async def test_namespaces_and_kinds_do_not_meet(world: World) -> None:
    async with opened(world) as here, opened(world, "other") as there:
        await here.reserve(run("r1"))
        await here.settle(end(world, "r1"))
        assert await there.prior("task", "k") is None
        assert await here.prior("workflow", "k") is None
        assert await there.get("r1") is None


async def test_results_go_with_retention_and_keys_with_their_window(world: World) -> None:
    async with opened(world) as records:
        for n in range(3):
            await records.reserve(run(f"r{n}", f"k{n}", input=b"1"))
            await records.settle(end(world, f"r{n}", output=b"2"))
        await records.reserve(run("open", "k9"))
        assert await records.clean() == 0
        await world.advance("8d")
        await records.clean()
        outcome = await records.outcome("r1")
        assert outcome is not None
        assert (outcome.status, outcome.output, outcome.expired) == (Status.COMPLETED, None, True)
        assert await records.input_of("r1") is None
        prior = await records.prior("task", "k1")
        assert prior is not None
        assert prior.fingerprint == b"f" * 16
        await world.advance("83d")
        assert (await records.reserve(run("r3", "k1"))).id == "r3"  # the window is over, cleaned or not
        await records.clean()
        assert await records.prior("task", "k0") is None
        assert await world.count("semel_record_key") == 2  # r3 and the one that is open


async def test_cleaning_takes_many_in_small_batches(world: World) -> None:
    async with opened(world) as records:
        for n in range(250):
            await records.reserve(run(f"r{n}", f"k{n}", retention="1d", window="1d"))
            await records.settle(end(world, f"r{n}"))
        await world.advance("2d")
        assert await records.clean() == 250
        assert await records.clean() == 0
        assert await world.count("semel_record_key") == 0


async def test_what_the_cluster_has_lost_has_failed(world: World) -> None:
    async with opened(world) as records:
        await records.reserve(run("open", "k1"))
        await records.reserve(run("gone", "k2"))
        asked: list[str] = []

        async def lives(executions: Sequence[str]) -> set[str]:
            asked.extend(executions)
            return {"open"}

        await records.clean(lives)
        assert asked == []  # it has not been long
        await world.advance("2d")
        await records.clean(lives)
        assert asked == ["gone", "open"]
        outcome = await records.outcome("gone")
        assert outcome is not None
        assert outcome.status is Status.FAILED
        assert outcome.error is not None
        assert outcome.error.type == "semel.Terminated"
        assert await records.outcome("open") is None
        assert await records.settle(end(world, "open"))


async def test_a_window_for_ever_is_for_ever(world: World) -> None:
    async with opened(world) as records:
        await records.reserve(run("r1", retention="1h", window="forever"))
        await records.settle(end(world, "r1"))
        await world.advance("3000d")
        await records.clean()
        prior = await records.prior("task", "k")
        decision = decide(prior, Request("charge", b"f" * 16, Reuse.FAILED_ONLY), world.now())
        assert not isinstance(decision, Admit)
