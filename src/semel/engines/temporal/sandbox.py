"""Temporal's sandbox for user-defined workflows, and how the SDK logs their failed workflow tasks."""

from __future__ import annotations

import logging
import sys
import sysconfig
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter, StorageDriverStoreContext, WorkflowSerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxMatcher, SandboxRestrictions
from temporalio.workflow import Info

from semel.define.registry import Registry
from semel.engine.failure_log import RepeatedFailures
from semel.engines.temporal.inside.classes import home
from semel.errors import phrase_with_type


def runner(registry: Registry, converter: DataConverter) -> SandboxedWorkflowRunner:
    """The sandbox: people's own modules are loaded afresh for each workflow, what is installed is not.

    Libraries do at import what a workflow must not do, and there is nothing to gain from loading them twice.
    """
    own = {home(one).__module__.partition(".")[0] for one in registry}
    passed = {"semel"}
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if top not in own and top == name and file and _is_installed(file):
            passed.add(top)
    restrictions = replace(
        SandboxRestrictions.default.with_passthrough_modules(*sorted(passed)), invalid_module_members=_refused()
    )
    return (SandboxedWorkflowRunner if _minds_context(converter) else Sandbox)(restrictions=restrictions)


@cache
def _is_installed(file: str) -> bool:
    """Is it in a folder that packages are installed into? Looked up once for each: there are hundreds of modules."""
    folders = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return not folders.isdisjoint(Path(file).resolve().parents)


@cache
def _refused() -> SandboxMatcher:
    """What the sandbox refuses, but for what is safe on Semel's loop: there these do the same at each replay.

    And but for `datetime`: to refuse `datetime.now()` the sandbox wraps the class, and no value of a wrapped class can
    be decoded, nor a Struct or dataclass that has one. `semel check` finds those calls, on every engine.
    """
    refused = SandboxRestrictions.invalid_module_members_default.with_child_unrestricted("datetime")
    for name in ("wait", "as_completed"):
        refused = refused.with_child_unrestricted("asyncio", name)
    return refused


def _minds_context(converter: DataConverter) -> bool:
    """Does it want to know whose payload it converts?"""
    someones = WorkflowSerializationContext(namespace="", workflow_id="")
    return converter.external_storage is not None or converter.with_context(someones) is not converter


@dataclass(frozen=True)
class Sandbox(SandboxedWorkflowRunner):
    """The same for a converter that treats all payloads alike.

    Temporal asks the sandbox whose payload each is, three times for each that goes in or out, and entering the sandbox
    takes longer than all the rest that it does with a payload.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """See WorkflowRunner."""
        return _Anyones(super().create_instance(det))


class _Anyones(WorkflowInstance):
    """One that does not say whose its payloads are."""

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """See WorkflowInstance."""
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> None:
        """See WorkflowInstance."""
        return

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        """See WorkflowInstance."""
        return StorageDriverStoreContext(target=None)

    def get_info(self) -> Info:
        """See WorkflowInstance."""
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        """See WorkflowInstance."""
        return self._inner.get_thread_id()


SDK_LOG: Final = logging.getLogger("temporalio.worker._workflow_instance")
MARK: Final = "__temporal_error_identifier"
FAILED_TASK: Final = "WorkflowTaskFailure"


class ShortenRepeats(logging.Filter):
    """On the SDK's log while a worker of Semel runs: leaves out the traceback where a workflow of these types fails as
    it did when it was last tried. A parked workflow is tried again and again."""

    def __init__(self, types: Collection[str]) -> None:
        super().__init__()
        self._types = types
        self._repeated = RepeatedFailures()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, those that repeat the failure before without their traceback."""
        about = getattr(record, "temporal_workflow", None)
        error = record.exc_info[1] if record.exc_info else None
        if getattr(record, MARK, None) != FAILED_TASK or not isinstance(about, dict) or error is None:
            return True
        if about.get("workflow_type") in self._types and self._repeated.is_repeated(str(about.get("run_id")), error):
            record.msg, record.args = "%s, as before: %s", (record.getMessage(), phrase_with_type(error))
            record.exc_info = record.exc_text = None
        return True
