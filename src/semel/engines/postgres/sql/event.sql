-- name: router_stamp
-- The number that changes with every change of a subscription: (namespace). 0: there never was one.
select coalesce((select stamp from semel_router where namespace = $1), 0)

-- name: set_router_stamp
-- Subscriptions have changed: (namespace, a random number).
insert into semel_router (namespace, stamp) values ($1, $2)
on conflict (namespace) do update set stamp = excluded.stamp

-- name: subscription_of
-- One subscription: (namespace, id). As list_subscriptions gives it.
select id, version, owner, definition, created_at, changed_at, paused_at, note
  from semel_subscription where namespace = $1 and id = $2

-- name: lock_subscription
-- One subscription, which nobody else changes until the end of this transaction: (namespace, id).
select id, version, owner, definition, created_at, changed_at, paused_at, note
  from semel_subscription where namespace = $1 and id = $2 for update

-- name: list_subscriptions
-- Subscriptions by their ids, after one of them: (namespace, after, limit).
select id, version, owner, definition, created_at, changed_at, paused_at, note
  from semel_subscription where namespace = $1 and id > $2 order by id limit $3

-- name: add_subscription
-- A subscription that is new: (namespace, id, owner, definition). A taken id is passed over.
insert into semel_subscription (namespace, id, version, owner, definition, created_at, changed_at)
values ($1, $2, 1, $3, $4, semel_now(), semel_now())
on conflict do nothing

-- name: change_subscription
-- Another definition of a subscription: (namespace, id, owner, definition).
update semel_subscription set version = version + 1, owner = $3, definition = $4, changed_at = semel_now()
 where namespace = $1 and id = $2

-- name: delete_subscription
-- Remove a subscription: (namespace, id). Its runs go on, and what is known of them stays.
delete from semel_subscription where namespace = $1 and id = $2 returning id

-- name: add_events
-- Events that are new, if the subscriptions are still those that they were routed by: the ids of those that are in.
-- Shared: namespace, stamp of the router; rows: id, type, source, state, activities, problem, delivery, future,
-- deliver_at, fingerprint, envelope.
insert into semel_event (namespace, id, type, source, state, activities, problem, delivery, future, received_at,
  deliver_at, fingerprint, envelope)
select $1, o.id, o.type, o.source, o.state, o.activities, o.problem, o.delivery, o.future, (select semel_now()),
  o.deliver_at, o.fingerprint, o.envelope
  from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::boolean[],
    $11::bigint[], $12::bytea[], $13::bytea[])
    as o(id, type, source, state, activities, problem, delivery, future, deliver_at, fingerprint, envelope)
 where coalesce((select stamp from semel_router where namespace = $1), 0) = $2
on conflict do nothing
returning id

-- name: publish_new
-- Events that are probably new, with the executions, the work rows and the records of their runs, in one statement, if the
-- subscriptions and the lanes are still those that they were routed by. Gives how many events are in, how many
-- executions, and wakes workers at commit. PostgreSQL: an event that is known, or a key that is taken, fails the statement.
-- Shared: namespace, stamp of the router, and of each subscription: kind, name, lane, max_attempts, retention,
-- dedup_window, activity, version. Rows: id, type, source, delivery, future, fingerprint, envelope, and of its run, if it
-- has one: execution, key, fingerprint, input, slot, number of the subscription.
with given as materialized (
  select * from unnest($11::text[], $12::text[], $13::text[], $14::bigint[], $15::boolean[], $16::bytea[], $17::bytea[],
    $18::text[], $19::text[], $20::bytea[], $21::bytea[], $22::bigint[], $23::int[])
    as o(id, type, source, delivery, future, fingerprint, envelope, execution, key, print, input, slot, number)
   where coalesce((select stamp from semel_router where namespace = $1), 0) = $2
     and (select count(*) from semel_lane l where l.id = any($5::int[])) = (select count(distinct n) from unnest($5::int[]) n)
), fresh as (
  insert into semel_event (namespace, id, type, source, state, activities, delivery, future, received_at, fingerprint,
    envelope)
  select $1, id, type, source, case when execution is null then 'unmatched' else 'routed' end,
    coalesce(($9::text[])[number], ''), delivery, future, (select semel_now()), fingerprint, envelope from given
  returning 1
), started as (
  insert into semel_execution (namespace, created_at, lane, kind, name, max_attempts, retention, dedup_window, id, key,
    fingerprint, input)
  select $1, (select semel_now()), ($5::int[])[number], ($3::text[])[number], ($4::text[])[number], ($6::int[])[number],
    ($7::bigint[])[number], ($8::bigint[])[number], execution, key, print, input
    from given where execution is not null
  returning id, lane, seq, name, max_attempts
), ready as (
  insert into semel_ready (lane, seq, execution, name, max_attempts) select lane, seq, id, name, max_attempts from started
), runs as (
  insert into semel_run (namespace, key, generation, schedule, slot, why, execution, version, slots, created_at)
  select $1, key, 0, ($9::text[])[number], slot, 'event', execution, ($10::int[])[number], 0, (select semel_now())
    from given where execution is not null
)
select (select count(*) from fresh), count(*),
       case when count(*) > 0 then pg_notify('semel_work', semel_payload(string_agg(distinct lane::text, ',')))::text end
  from started

-- name: announce_events
-- Tell workers that an event waits to be delivered: ().
select pg_notify('semel_schedule', 'events')::text

-- name: known_events
-- What is known of events, what time it is, and the stamp of the router. Shared: namespace; rows: id.
-- Lateral, so that each is looked up by its id: a join may read all events of the namespace instead.
select e.id, e.state, e.activities, e.problem, e.delivery, e.fingerprint, e.received_at, e.deliver_at,
  semel_now(), coalesce((select stamp from semel_router where namespace = $1), 0)
  from unnest($2::text[]) as o(id)
 cross join lateral (select * from semel_event k where k.id = o.id and k.namespace = $1 limit 1) e

-- name: lock_events
-- Events as known_events gives them, which nobody else routes until the end of this transaction, if the subscriptions
-- are still those that they are routed by. Shared: namespace, stamp of the router; rows: id.
select e.id, e.state, e.activities, e.problem, e.delivery, e.fingerprint, e.received_at, e.deliver_at,
  semel_now(), coalesce((select stamp from semel_router where namespace = $1), 0)
  from semel_event e
 where e.id = any($3::text[]) and e.namespace = $1
   and coalesce((select stamp from semel_router where namespace = $1), 0) = $2
 order by e.id for update of e

-- name: event_of
-- One event, whole: (namespace, id).
select id, type, source, state, activities, problem, future, received_at, deliver_at, duplicates, duplicate_at, envelope
  from semel_event where namespace = $1 and id = $2

-- name: list_events
-- List events, newest first: (namespace, state or null, type or null, id of the one before them or null, limit).
select id, type, source, state, activities, problem, future, received_at, deliver_at, duplicates, duplicate_at, null
  from semel_event
 where namespace = $1 and ($2::text is null or state = $2) and ($3::text is null or type = $3)
   and ($4::text is null
        or (received_at, id) < (select b.received_at, b.id from semel_event b where b.namespace = $1 and b.id = $4))
 order by received_at desc, id desc limit $5

-- name: kept_events
-- Events that have been routed, oldest first, after one of them: (namespace, since, its received_at, its id, until,
-- limit). Gives id, received_at, activities, envelope.
select id, received_at, activities, envelope from semel_event
 where namespace = $1 and state in ('routed', 'unmatched') and received_at >= $2
   and (received_at, id) > ($3, $4) and received_at < $5
 order by received_at, id limit $6

-- name: due_events
-- Events that are to be delivered now, the longest due first: (namespace, limit). Gives id, envelope.
select id, envelope from semel_event
 where namespace = $1 and state = 'waiting' and deliver_at <= (select semel_now()) order by deliver_at limit $2

-- name: next_due_event
-- When an event is to be delivered or somebody has to look at a flow next, and what time it is: (namespace).
select (select min(due_at) from (
  select min(deliver_at) as due_at from semel_event where namespace = $1 and state = 'waiting'
  union all
  select min(due_at) from semel_event_flow where namespace = $1 and due_at is not null) d), semel_now()

-- name: route_events
-- What became of events. Shared: namespace; rows: id, state, activities, problem.
-- With `any`, so that they are looked up by their ids: a join alone may read all events of the namespace.
update semel_event e set state = o.state, activities = o.activities, problem = o.problem
  from unnest($2::text[], $3::text[], $4::text[], $5::text[]) as o(id, state, activities, problem)
 where e.id = any($2::text[]) and e.id = o.id and e.namespace = $1

-- name: renew_events
-- Events count as received now. Shared: namespace; rows: id.
update semel_event set received_at = semel_now() where id = any($2::text[]) and namespace = $1

-- name: count_deliveries
-- Add up deliveries of events that did not count. Shared: namespace; rows: id, times, last_at.
-- With `any`, as in route_events.
update semel_event e
   set duplicates = e.duplicates + o.times, duplicate_at = greatest(e.duplicate_at, o.last_at)
  from unnest($2::text[], $3::bigint[], $4::bigint[]) as o(id, times, last_at)
 where e.id = any($2::text[]) and e.id = o.id and e.namespace = $1

-- name: runs_by_key
-- The newest run under each of these keys. Shared: namespace; rows: key.
-- Gives key, generation, schedule, slot, why, execution, version, created_at, whether it has been started.
-- Lateral, as in known_events.
select r.key, r.generation, r.schedule, r.slot, r.why, r.execution, r.version, r.created_at, r.request is null
  from (select distinct key from unnest($2::text[]) as k(key)) o
 cross join lateral (
   select * from semel_run n where n.key = o.key and n.namespace = $1 order by n.generation desc limit 1) r

-- name: count_events
-- How many events there are in a state, up to a limit, and the oldest of them: (namespace, state, limit).
select count(*), min(id) from (
  select id from semel_event where namespace = $1 and state = $2 order by received_at limit $3) e

-- name: forget_events
-- Forget events that are older than a time, some at once: (namespace, time, limit). Those that wait stay,
-- for their time or in a flow.
delete from semel_event where ctid = any(array(
  select ctid from semel_event e where e.namespace = $1 and received_at < $2 and state <> 'waiting'
   and not exists (select 1 from semel_event_outcome p where p.event = e.id and p.namespace = e.namespace
     and p.state in ('gathered', 'queued', 'paused')) limit $3))
returning id
