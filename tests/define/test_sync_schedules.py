"""`app.sync.schedules` has the verbs of `app.schedules`, without await."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path

import semel
from semel.backfills import Backfills
from semel.contract.backfill import BackfillStatus
from semel.schedules import Schedules
from semel.sync_verbs import SyncBackfills, SyncSchedules

NOT_VERBS = {"declare", "declare_activity", "apply", "warn_unapplied", "explain_run"}


def verbs(thing: type) -> dict[str, list[str]]:
    members = {name: one for name, one in vars(thing).items() if name[0] != "_" and inspect.isfunction(one)}
    return {name: list(inspect.signature(one).parameters) for name, one in members.items()}


def test_both_faces_have_the_same_verbs_with_the_same_parameters() -> None:
    found = {name: parameters for name, parameters in verbs(Schedules).items() if name not in NOT_VERBS}
    assert verbs(SyncSchedules) == found
    assert verbs(SyncBackfills) == verbs(Backfills)


def test_schedules_without_await(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/semel.db", config=None)

    @app.on_schedule("0 9 * * *", id="nightly")
    @app.task
    def digest(city: str = "Paris") -> None: ...

    try:
        assert [one.id for one in app.sync.schedules.unapplied()] == ["nightly"]
        assert [str(change) for change in app.sync.apply()] == ["create nightly"]
        face = app.sync.schedules
        face.put("paris", face.call(digest, city="Oslo"), every="1h")
        assert [one.id for one in face.list()] == ["nightly", "paris"]
        assert face.edit("paris", every="2h").version == 2
        face.pause("paris", "audit")
        assert face.get("paris").note == "audit"
        face.resume("paris")
        handle = face.trigger("paris", "a")
        assert handle.status() is semel.Status.PENDING
        assert [run.execution for run in face.runs("paris")] == [handle.id]
        assert face.skipped("paris") == []
        assert len(face.next("paris", 3)) == 3
        now = datetime.now(UTC)
        plan = face.backfill("paris", now - timedelta(hours=4), now, dry_run=True)
        assert (plan.to_run, face.backfills.list()) == (2, [])
        made = face.backfill("paris", now - timedelta(hours=4), now, request_key="b")
        assert face.backfills.pause(made.id, "later").note == "later"
        assert face.backfills.resume(made.id).status is BackfillStatus.RUNNING
        assert face.backfills.cancel(made.id) == face.backfills.get(made.id) == face.backfills.wait(made.id, "1s")
        assert [str(one.kind) for one in face.reconcile()] == []
        face.delete("paris")
        assert [one.id for one in face.list()] == ["nightly"]
    finally:
        app.sync.close()
