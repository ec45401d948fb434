-- name: router_stamp
-- The number that changes with every change of a subscription: (namespace). 0: there never was one.
select coalesce((select stamp from semel_router where namespace = ?1), 0)

-- name: set_router_stamp
-- Subscriptions have changed: (namespace, a random number).
insert into semel_router (namespace, stamp) values (?1, ?2)
on conflict (namespace) do update set stamp = excluded.stamp

-- name: subscription_of
-- One subscription: (namespace, id). As list_subscriptions gives it.
select id, version, owner, definition, created_at, changed_at, paused_at, note
  from semel_subscription where namespace = ?1 and id = ?2

-- name: lock_subscription
-- One subscription, which nobody else changes until the end of this transaction: (namespace, id).
select id, version, owner, definition, created_at, changed_at, paused_at, note
  from semel_subscription where namespace = ?1 and id = ?2

-- name: list_subscriptions
-- Subscriptions by their ids, after one of them: (namespace, after, limit).
select id, version, owner, definition, created_at, changed_at, paused_at, note
  from semel_subscription where namespace = ?1 and id > ?2 order by id limit ?3

-- name: add_subscription
-- A subscription that is new: (namespace, id, owner, definition). A taken id is passed over.
insert into semel_subscription (namespace, id, version, owner, definition, created_at, changed_at)
values (?1, ?2, 1, ?3, ?4, semel_now(), semel_now())
on conflict do nothing

-- name: change_subscription
-- Another definition of a subscription: (namespace, id, owner, definition).
update semel_subscription set version = version + 1, owner = ?3, definition = ?4, changed_at = semel_now()
 where namespace = ?1 and id = ?2

-- name: delete_subscription
-- Remove a subscription: (namespace, id). Its runs go on, and what is known of them stays.
delete from semel_subscription where namespace = ?1 and id = ?2 returning id

-- name: add_events
-- Events that are new, if the subscriptions are still those that they were routed by: the ids of those that are in.
-- Shared: namespace, stamp of the router; rows: id, type, source, state, activities, problem, delivery, future,
-- deliver_at, fingerprint, envelope.
insert into semel_event (namespace, id, type, source, state, activities, problem, delivery, future, received_at,
  deliver_at, fingerprint, envelope)
select ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
  semel_now(), value ->> 8, bytes_at(value ->> 9), bytes_at(value ->> 10)
  from json_each(?3)
 where coalesce((select stamp from semel_router where namespace = ?1), 0) = ?2
on conflict do nothing
returning id

-- name: publish_new
-- Events that are probably new, with the executions, the work rows and the records of their runs, if the subscriptions and
-- the lanes are still those that they were routed by. Gives how many events are in, and how many executions.
-- SQLite: in three statements; an event that is known, or a key that is taken, is passed over, and the counts tell.
-- Shared: namespace, stamp of the router, and of each subscription: kind, name, lane, max_attempts, retention,
-- dedup_window, activity, version. Rows: id, type, source, delivery, future, fingerprint, envelope, and of its run, if it
-- has one: execution, key, fingerprint, input, slot, number of the subscription.
with s as materialized (select key + 1 as number, value as activity from json_each(?9))
insert into semel_event (namespace, id, type, source, state, activities, delivery, future, received_at, fingerprint,
  envelope)
select ?1, o.value ->> 0, o.value ->> 1, o.value ->> 2, iif(s.number is null, 'unmatched', 'routed'),
  coalesce(s.activity, ''), o.value ->> 3, o.value ->> 4, semel_now(), bytes_at(o.value ->> 5), bytes_at(o.value ->> 6)
  from json_each(?11) o left join s on s.number = o.value ->> 12
 where coalesce((select stamp from semel_router where namespace = ?1), 0) = ?2
   and not exists (select 1 from json_each(?5) l where l.value not in (select id from semel_lane))
on conflict do nothing;
select changes();
with s as materialized (
  select key + 1 as number, value as kind, ?4 ->> key as name, ?5 ->> key as lane, ?6 ->> key as max_attempts,
    ?7 ->> key as retention, ?8 ->> key as dedup_window from json_each(?3))
insert into semel_execution (namespace, created_at, lane, kind, name, max_attempts, retention, dedup_window, id, key,
  fingerprint, input, seq)
select ?1, semel_now(), s.lane, s.kind, s.name, s.max_attempts, s.retention, s.dedup_window, o.value ->> 7, o.value ->> 8,
  bytes_at(o.value ->> 9), bytes_at(o.value ->> 10), q.seq + 1 + o.key
  from sqlite_sequence q cross join json_each(?11) o cross join s on s.number = o.value ->> 12
 where q.name = 'semel_ready' and (select changes()) = (select json_array_length(?11))
on conflict (key, namespace, kind) where key is not null and current do nothing;
select changes();
with s as materialized (select key + 1 as number, value as activity, ?10 ->> key as version from json_each(?9))
insert into semel_run (namespace, key, generation, schedule, slot, why, execution, version, slots, created_at)
select ?1, o.value ->> 8, 0, s.activity, o.value ->> 11, 'event', o.value ->> 7, s.version, 0, semel_now()
  from json_each(?11) o cross join s on s.number = o.value ->> 12
 where (select changes()) > 0
on conflict do nothing

-- name: announce_events
-- Tell workers that an event waits to be delivered: (). SQLite: every commit rings for all others.
select 1

-- name: known_events
-- What is known of events, what time it is, and the stamp of the router. Shared: namespace; rows: id.
select e.id, e.state, e.activities, e.problem, e.delivery, e.fingerprint, e.received_at, e.deliver_at,
  semel_now(), coalesce((select stamp from semel_router where namespace = ?1), 0)
  from json_each(?2) o cross join semel_event e on e.id = o.value ->> 0 and e.namespace = ?1

-- name: lock_events
-- Events as known_events gives them, which nobody else routes until the end of this transaction, if the subscriptions
-- are still those that they are routed by. Shared: namespace, stamp of the router; rows: id.
select e.id, e.state, e.activities, e.problem, e.delivery, e.fingerprint, e.received_at, e.deliver_at,
  semel_now(), coalesce((select stamp from semel_router where namespace = ?1), 0)
  from json_each(?3) o cross join semel_event e on e.id = o.value ->> 0 and e.namespace = ?1
 where coalesce((select stamp from semel_router where namespace = ?1), 0) = ?2

-- name: event_of
-- One event, whole: (namespace, id).
select id, type, source, state, activities, problem, future, received_at, deliver_at, duplicates, duplicate_at, envelope
  from semel_event where namespace = ?1 and id = ?2

-- name: list_events
-- List events, newest first: (namespace, state or null, type or null, id of the one before them or null, limit).
select id, type, source, state, activities, problem, future, received_at, deliver_at, duplicates, duplicate_at, null
  from semel_event
 where namespace = ?1 and (?2 is null or state = ?2) and (?3 is null or type = ?3)
   and (?4 is null
        or (received_at, id) < (select b.received_at, b.id from semel_event b where b.namespace = ?1 and b.id = ?4))
 order by received_at desc, id desc limit ?5

-- name: kept_events
-- Events that have been routed, oldest first, after one of them: (namespace, since, its received_at, its id, until,
-- limit). Gives id, received_at, activities, envelope.
select id, received_at, activities, envelope from semel_event
 where namespace = ?1 and state in ('routed', 'unmatched') and received_at >= ?2
   and (received_at, id) > (?3, ?4) and received_at < ?5
 order by received_at, id limit ?6

-- name: due_events
-- Events that are to be delivered now, the longest due first: (namespace, limit). Gives id, envelope.
select id, envelope from semel_event
 where namespace = ?1 and state = 'waiting' and deliver_at <= semel_now() order by deliver_at limit ?2

-- name: next_due_event
-- When an event is to be delivered or somebody has to look at a flow next, and what time it is: (namespace).
select (select min(due_at) from (
  select min(deliver_at) as due_at from semel_event where namespace = ?1 and state = 'waiting'
  union all
  select min(due_at) from semel_event_flow where namespace = ?1 and due_at is not null) d), semel_now()

-- name: route_events
-- What became of events. Shared: namespace; rows: id, state, activities, problem.
update semel_event
   set state = o.value ->> 1, activities = o.value ->> 2, problem = o.value ->> 3
  from json_each(?2) o
 where semel_event.id = o.value ->> 0 and semel_event.namespace = ?1

-- name: renew_events
-- Events count as received now. Shared: namespace; rows: id.
update semel_event set received_at = semel_now() from json_each(?2) o
 where semel_event.id = o.value ->> 0 and semel_event.namespace = ?1

-- name: count_deliveries
-- Add up deliveries of events that did not count. Shared: namespace; rows: id, times, last_at.
update semel_event
   set duplicates = duplicates + (o.value ->> 1),
       duplicate_at = max(coalesce(duplicate_at, 0), o.value ->> 2)
  from json_each(?2) o
 where semel_event.id = o.value ->> 0 and semel_event.namespace = ?1

-- name: runs_by_key
-- The newest run under each of these keys. Shared: namespace; rows: key.
-- Gives key, generation, schedule, slot, why, execution, version, created_at, whether it has been started.
select r.key, r.generation, r.schedule, r.slot, r.why, r.execution, r.version, r.created_at, r.request is null
  from json_each(?2) o cross join semel_run r on r.key = o.value ->> 0 and r.namespace = ?1
 where r.generation = (select max(n.generation) from semel_run n where n.key = r.key and n.namespace = ?1)

-- name: count_events
-- How many events there are in a state, up to a limit, and the oldest of them: (namespace, state, limit).
select count(*), min(id) from (
  select id from semel_event where namespace = ?1 and state = ?2 order by received_at limit ?3) e

-- name: forget_events
-- Forget events that are older than a time, some at once: (namespace, time, limit). Those that wait stay,
-- for their time or in a flow.
delete from semel_event where rowid in (
  select rowid from semel_event e where e.namespace = ?1 and received_at < ?2 and state <> 'waiting'
   and not exists (select 1 from semel_event_outcome p where p.event = e.id and p.namespace = e.namespace
     and p.state in ('gathered', 'queued', 'paused')) limit ?3)
returning id
