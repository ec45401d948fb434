"""What a workflow calls is workflow code, wherever it stands, and the message shows the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.check import Report, check

FLOW = """
import semel
{imports}
app = semel.App()

@app.workflow
async def process_order(ctx: semel.Context, order_id: str) -> None:
    {body}
"""


def project(folder: Path, **files: str) -> Report:
    """Check a project; `_in_` stands for the slash in a path."""
    for name, text in files.items():
        path = folder / f"{name.replace('_in_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return check([folder])


def test_the_way_is_in_the_message(tmp_path: Path) -> None:
    report = project(
        tmp_path,
        flow=FLOW.format(imports="import helpers", body="helpers.total(1)"),
        helpers="import time\ndef total(x):\n    return rounded(x)\ndef rounded(x):\n    return time.time()\n",
    )
    (finding,) = report.findings
    assert finding.reached == "reached from process_order -> helpers.total -> rounded"
    assert str(finding).startswith(f"{tmp_path}/helpers.py:5:12: D01 wall-clock: time.time() reads the clock (reached")
    assert str(finding).endswith("; instead: ctx.now()")


def test_the_shortest_way_is_told_and_each_place_once(tmp_path: Path) -> None:
    text = "def far():\n    near()\ndef near():\n    print(1)\n"
    report = project(tmp_path, helpers=text, flow=FLOW.format(imports="from helpers import *", body="far(); near()"))
    assert [finding.reached for finding in report.findings] == ["reached from process_order -> helpers.near"]


def test_in_the_workflow_itself_there_is_no_way_to_show(tmp_path: Path) -> None:
    (finding,) = project(tmp_path, flow=FLOW.format(imports="", body="print(1)")).findings
    assert (finding.reached, finding.chain) == ("", ("process_order",))


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import shop.helpers", "shop.helpers.work()"),
        ("import shop.helpers as h", "h.work()"),
        ("from shop import helpers", "helpers.work()"),
        ("from shop.helpers import work as w", "w()"),
        ("from shop import work", "work()"),
        ("from shop.helpers import *", "work()"),
        ("import functools, shop", "functools.partial(shop.work)()"),
        ("from shop.helpers import Worker", "Worker().run()"),
        ("from shop.helpers import Worker", "Worker.make().run()"),
        ("from shop.helpers import worker", "worker.run()"),
        ("from shop.helpers import make", "make().run()"),
        ("from shop.helpers import Derived", "Derived().other()"),
        ("from shop.helpers import Worker", "x = Worker(); y = x; y.run()"),
        ("from shop.helpers import work", "await asyncio.gather(*[work() for _ in [1]])"),
        ("from shop.helpers import work", "sorted([1], key=work)"),
        ("from shop.helpers import work", "(lambda: work())()"),
    ],
)
def test_every_way_to_call(tmp_path: Path, imports: str, call: str) -> None:
    report = project(
        tmp_path,
        src_in_shop_in___init__="from .helpers import work\n",
        src_in_shop_in_helpers="""
class Worker:
    @classmethod
    def make(cls) -> "Worker":
        return cls()
    def run(self):
        print("found")
class Derived(Worker):
    def other(self):
        super().run()
worker = Worker()
def make() -> Worker: return Worker()
def work(*args):
    worker.run()
""",
        src_in_flow=FLOW.format(imports=f"import asyncio\n{imports}", body=call),
    )
    assert [(finding.rule.name, finding.line) for finding in report.findings] == [("console", 7)]


def test_an_import_means_the_nearest_module(tmp_path: Path) -> None:
    flow = FLOW.format(imports="from helpers import work", body="work()")
    report = project(
        tmp_path,
        one_in_flow=flow,
        one_in_helpers="def work(): print(1)\n",
        two_in_flow=flow,
        two_in_helpers="def work(): 1\n",
    )
    assert [finding.path for finding in report.findings] == [f"{tmp_path}/one/helpers.py"]


def test_the_standard_library_is_not_shadowed_by_a_file_of_that_name(tmp_path: Path) -> None:
    report = project(
        tmp_path,
        random="def choice(x): return x\n",
        flow=FLOW.format(imports="import random", body="random.choice([1])"),
    )
    assert [finding.rule.name for finding in report.findings] == ["randomness"]


def test_a_workflow_of_temporal_is_told_of_temporal(tmp_path: Path) -> None:
    report = project(
        tmp_path,
        flow="""
import time
from temporalio import workflow
@workflow.defn
class Order:
    @workflow.run
    async def run(self): time.time()
""",
    )
    assert [finding.instead for finding in report.findings] == ["workflow.now()"]
