"""Workers that belong to a deployment: which build of the code takes which workflow."""

from __future__ import annotations

from typing import Final

from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import WorkerDeploymentConfig

from semel.errors import ConfigError
from semel.settings import Settings

BEHAVIOURS: Final = {
    "pinned": VersioningBehavior.PINNED,
    "auto_upgrade": VersioningBehavior.AUTO_UPGRADE,
}


def versioned(settings: Settings) -> WorkerDeploymentConfig | None:
    """How a worker is versioned; None: it is not.

    The behaviour stands in the worker's configuration only: on a class it would make workers without a version hang.
    """
    own = settings.temporal
    if own.deployment is None and own.build_id is None:
        return None
    if own.deployment is None or own.build_id is None:
        missing = "deployment" if own.deployment is None else "build_id"
        raise ConfigError(f"a versioned worker needs temporal.deployment and temporal.build_id: {missing} is missing.")
    version = WorkerDeploymentVersion(own.deployment, own.build_id)
    return WorkerDeploymentConfig(
        version, use_worker_versioning=True, default_versioning_behavior=BEHAVIOURS[own.versioning]
    )
