-- The business database of `semel demo outage`, in SQLite. The tables of its outbox are Semel's own.

-- name: create_tenants
-- The business table: `provisioned` counts how often provisioning was done, `engine` is how the engine was: up or down.
create table tenant (
  id integer primary key,
  slug text not null unique,
  status text not null default 'provisioning',
  provisioned integer not null default 0,
  engine text not null
)

-- name: add_tenant
-- Register a tenant, unless its slug is registered already.
insert or ignore into tenant (slug, engine) values (?, ?)

-- name: tenant_of_slug
-- Find the tenant of a slug.
select id from tenant where slug = ?

-- name: status_of_tenant
-- Read the status of a tenant before anything is done for it.
select status from tenant where id = ?

-- name: activate_tenant
-- Provision a tenant.
update tenant set status = 'active', provisioned = provisioned + 1 where id = ?

-- name: newest_tenant
-- Find who registered last.
select id, slug from tenant order by id desc limit 1

-- name: all_tenants
-- Read the whole table for the last line of the demo.
select slug, status, provisioned, engine from tenant order by id

-- name: count_not_active
-- Count tenants that wait for their provisioning.
select count(*) from tenant where status <> 'active'

-- name: count_pending
-- Count starts that wait in the outbox.
select count(*) from outbox_events where status = 'pending'

-- name: pending_keys
-- Find what waits in the outbox.
select key from outbox_events where status = 'pending'

-- name: count_unavailable
-- Count engines that a relay has found to be down.
select count(*) from outbox_destinations
