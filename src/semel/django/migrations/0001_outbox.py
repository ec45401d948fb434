"""The tables of the outbox and of the inbox."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations

from semel.django.outbox_tables import CreateOutbox


class Migration(migrations.Migration):
    """For every database that has business rows: `manage.py migrate semel --database ALIAS`."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[CreateOutbox]] = [CreateOutbox()]
