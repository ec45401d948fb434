"""The Django app: `"semel.django"` in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import autodiscover_modules

BACKEND = "semel.django.task_backend.SemelBackend"


class SemelConfig(AppConfig):
    """Has a migration with the tables of the outbox, and imports the `tasks` modules of all apps.

    The modules are imported only if a backend of TASKS is Semel's: a worker has to know every task by its name.
    """

    name = "semel.django"
    label = "semel"
    verbose_name = "Semel"

    def ready(self) -> None:
        """Called by Django once all apps are there."""
        if any(one.get("BACKEND") == BACKEND for one in getattr(settings, "TASKS", {}).values()):
            autodiscover_modules("tasks")
