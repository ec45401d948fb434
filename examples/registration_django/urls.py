"""The addresses of the site."""

from __future__ import annotations

from django.urls import path

from examples.registration_django import views

urlpatterns = [path("tenants", views.tenants), path("tenants/<slug:slug>", views.tenant)]
