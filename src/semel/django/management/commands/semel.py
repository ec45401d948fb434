"""`python manage.py semel …`: the command line of Semel with Django set up, such as a worker needs it for models."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Hands its arguments to `semel`: `python manage.py semel worker shop.durable:app`."""

    help = "The command line of Semel, with Django set up: manage.py semel worker MODULE:APP"

    def run_from_argv(self, argv: list[str]) -> None:
        """All arguments are those of `semel`, options such as --help as well."""
        from semel.cli import main

        sys.argv = [f"{argv[0]} {argv[1]}", *argv[2:]]
        main()
