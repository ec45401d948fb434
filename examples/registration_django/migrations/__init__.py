"""Migrations of the site."""
