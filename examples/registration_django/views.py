"""The HTTP API: POST /tenants registers, GET /tenants/SLUG tells how a tenant stands."""

from __future__ import annotations

import json

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from examples.registration_django.models import Tenant
from examples.registration_django.registration import SlugTaken, register


@csrf_exempt
@require_POST
def tenants(request: HttpRequest) -> JsonResponse:
    """201: registered. 200: this registration was there before. 409: somebody else has the name."""
    form = json.loads(request.body)
    try:
        tenant, new = register(form["slug"], form["email"])
    except SlugTaken:
        return JsonResponse({"error": "taken"}, status=409)
    return JsonResponse({"id": str(tenant.pk), "status": tenant.status}, status=201 if new else 200)


@require_GET
def tenant(request: HttpRequest, slug: str) -> JsonResponse:
    found = get_object_or_404(Tenant, slug=slug)
    return JsonResponse({"id": str(found.pk), "status": found.status})
