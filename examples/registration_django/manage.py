"""Django's command line for this site.

    python -m examples.registration_django.manage migrate
    python -m examples.registration_django.manage runserver
    python -m examples.registration_django.manage semel worker examples.registration_django.provisioning:app \
        --relay sqlite:///registration.db
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.registration_django.settings")

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
