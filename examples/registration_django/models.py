"""Tenants, their users, and the workspace that each tenant gets."""

from __future__ import annotations

import uuid

from django.db import models


class Tenant(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    slug = models.SlugField(unique=True)
    status = models.CharField(max_length=20, default="provisioning")


class User(models.Model):
    email = models.EmailField()
    tenant = models.OneToOneField(Tenant, models.CASCADE)


class Workspace(models.Model):
    """Not unique on purpose: a tenant that is provisioned twice has two."""

    tenant = models.ForeignKey(Tenant, models.CASCADE)
