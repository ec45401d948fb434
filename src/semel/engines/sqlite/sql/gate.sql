-- name: limits
-- The limits of all queues in the namespace.
select name, rate_limit, concurrency, retention, dedup_window from semel_queue where namespace = ?1 order by name

-- name: set_queue
-- Settings of a queue, for every worker: (namespace, name, rate_limit, concurrency, retention, dedup_window).
-- What is null here stays as someone else has set it.
insert into semel_queue (namespace, name, rate_limit, concurrency, retention, dedup_window)
values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (namespace, name) do update
  set rate_limit = coalesce(excluded.rate_limit, semel_queue.rate_limit),
      concurrency = coalesce(excluded.concurrency, semel_queue.concurrency),
      retention = coalesce(excluded.retention, semel_queue.retention),
      dedup_window = coalesce(excluded.dedup_window, semel_queue.dedup_window)

-- name: fill_queue
-- Settings of a queue where there are none: (namespace, name, rate_limit, concurrency, retention, dedup_window).
insert into semel_queue (namespace, name, rate_limit, concurrency, retention, dedup_window)
values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (namespace, name) do update
  set rate_limit = coalesce(semel_queue.rate_limit, excluded.rate_limit),
      concurrency = coalesce(semel_queue.concurrency, excluded.concurrency),
      retention = coalesce(semel_queue.retention, excluded.retention),
      dedup_window = coalesce(semel_queue.dedup_window, excluded.dedup_window)

-- name: make_gate
-- A bucket that is not there yet: (namespace, scope).
insert into semel_gate (namespace, scope) values (?1, ?2) on conflict do nothing

-- name: lock_gate
-- Hold a bucket until the end of the transaction; gives tokens, refilled_at and the time.
-- SQLite: the transaction is the lock.
select tokens, refilled_at, semel_now() from semel_gate where namespace = ?1 and scope = ?2

-- name: fill_gate
-- Write a bucket back: (namespace, scope, tokens, refilled_at).
update semel_gate set tokens = ?3, refilled_at = ?4 where namespace = ?1 and scope = ?2

-- name: prune_permits
-- Permits whose claim is gone count no more.
delete from semel_permit
 where namespace = ?1 and not exists (
   select 1 from semel_ready r where r.lane = semel_permit.lane and r.seq = semel_permit.seq and r.owner is not null)

-- name: count_permits
-- How many permits of a scope are in use: (namespace, scope).
select count(*) from semel_permit where namespace = ?1 and scope = ?2

-- name: grant_permits
-- Permits for claims just made. Shared: namespace; rows: scope, lane, seq.
insert into semel_permit (namespace, scope, lane, seq)
select ?1, value ->> 0, value ->> 1, value ->> 2 from json_each(?2) where true on conflict do nothing

-- name: wake
-- Tell every worker to look at a lane again: (lane). SQLite: other processes see the commit itself.
select ?1
