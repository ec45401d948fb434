"""Settings of the site. The engine is what SEMEL_URL says; the business has a database of its own."""

from __future__ import annotations

import os

SECRET_KEY = "only an example"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "examples.registration_django.urls"
INSTALLED_APPS = ["semel.django", "examples.registration_django"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("REGISTRATION_DATABASE", "registration.db"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
    }
}
