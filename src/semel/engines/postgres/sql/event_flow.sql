-- name: open_event_flows
-- Flows that are asked for the first time. Shared: namespace; rows: kind, activity, key.
insert into semel_event_flow (namespace, kind, activity, key, state, changed_at)
select $1, o.kind, o.activity, o.key, ''::bytea, semel_now()
  from unnest($2::text[], $3::text[], $4::text[]) as o(kind, activity, key)
on conflict do nothing

-- name: lock_event_flows
-- Flows that nobody else changes until the end of this transaction, and what time it is.
-- Shared: namespace; rows: kind, activity, key. Gives kind, activity, key, state, due_at, now.
select f.kind, f.activity, f.key, f.state, f.due_at, semel_now()
  from unnest($2::text[], $3::text[], $4::text[]) as o(kind, activity, key)
  join semel_event_flow f on f.activity = o.activity and f.kind = o.kind and f.key = o.key and f.namespace = $1
 order by f.kind, f.activity, f.key for update of f

-- name: event_flows_of
-- The same, without a lock.
select f.kind, f.activity, f.key, f.state, f.due_at, semel_now()
  from unnest($2::text[], $3::text[], $4::text[]) as o(kind, activity, key)
  join semel_event_flow f on f.activity = o.activity and f.kind = o.kind and f.key = o.key and f.namespace = $1

-- name: find_due_event_flows
-- Flows that somebody has to look at now, the longest due first: (namespace, limit). As lock_event_flows gives them.
select kind, activity, key, state, due_at, semel_now() from semel_event_flow
 where namespace = $1 and due_at <= (select semel_now()) order by due_at limit $2

-- name: lock_due_event_flows
-- The same, which nobody else changes until the end of this transaction; those that somebody else has locked are
-- passed over: (namespace, limit).
select kind, activity, key, state, due_at, semel_now() from semel_event_flow
 where namespace = $1 and due_at <= (select semel_now()) order by due_at limit $2
 for update skip locked

-- name: save_event_flows
-- How flows stand. Shared: namespace; rows: kind, activity, key, state, due_at.
insert into semel_event_flow (namespace, kind, activity, key, state, due_at, changed_at)
select $1, o.kind, o.activity, o.key, o.state, o.due_at, semel_now()
  from unnest($2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[]) as o(kind, activity, key, state, due_at)
on conflict (activity, kind, key, namespace) do update
  set state = excluded.state, due_at = excluded.due_at, changed_at = excluded.changed_at

-- name: drop_event_flows
-- Flows that are over. Shared: namespace; rows: kind, activity, key.
delete from semel_event_flow f using unnest($2::text[], $3::text[], $4::text[]) as o(kind, activity, key)
 where f.activity = o.activity and f.kind = o.kind and f.key = o.key and f.namespace = $1

-- name: forget_event_flows
-- Forget flows that nobody waits for and that nothing has come to since a time, some at once: (namespace, time, limit).
delete from semel_event_flow where ctid = any(array(
  select ctid from semel_event_flow
   where namespace = $1 and changed_at < $2 and due_at is null and kind <> 'pause' limit $3))
returning key

-- name: add_outcomes
-- What became of events that have come to an activity. One that comes again takes the place of what was.
-- Shared: namespace; rows: event, activity, state, kind, key, run, reason, arrival, happened_at, cancel_key.
insert into semel_event_outcome (namespace, event, activity, state, kind, key, run, reason, arrival, happened_at,
  cancel_key)
select $1, o.*
  from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[],
    $10::bigint[], $11::text[]) as o
on conflict (event, activity, namespace) do update
  set state = excluded.state, kind = excluded.kind, key = excluded.key, run = excluded.run, reason = excluded.reason,
      arrival = excluded.arrival, happened_at = excluded.happened_at, cancel_key = excluded.cancel_key

-- name: change_outcomes
-- What became of events that had waited. Shared: namespace; rows: event, activity, state, kind, key, run, reason.
update semel_event_outcome p set state = o.state, kind = o.kind, key = o.key, run = o.run, reason = o.reason
  from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    as o(event, activity, state, kind, key, run, reason)
 where p.event = o.event and p.activity = o.activity and p.namespace = $1

-- name: outcomes_of
-- What became of events, for each activity with such options. Shared: namespace; rows: event.
-- Gives event, activity, state, kind, run, reason, when somebody looks at it next.
select p.event, p.activity, p.state, p.kind, p.run, p.reason, f.due_at
  from unnest($2::text[]) as o(event) join semel_event_outcome p on p.event = o.event and p.namespace = $1
  left join semel_event_flow f
    on f.activity = p.activity and f.kind = p.kind and f.key = p.key and f.namespace = p.namespace
 order by p.activity

-- name: events_of_runs
-- The events that runs have gathered, oldest first. Shared: namespace; rows: run. Gives run, event.
select p.run, p.event from unnest($2::text[]) as o(run) join semel_event_outcome p on p.run = o.run and p.namespace = $1
 order by p.run, p.happened_at, p.arrival

-- name: envelopes_of
-- Events as they came. Shared: namespace; rows: id. Gives id, envelope.
select e.id, e.envelope from unnest($2::text[]) as o(id) join semel_event e on e.id = o.id and e.namespace = $1

-- name: forget_outcomes
-- Forget what became of events. Shared: namespace; rows: event.
delete from semel_event_outcome where event = any($2::text[]) and namespace = $1

-- name: cancellable_outcomes
-- Events that run or wait and happened before an event that cancels them, oldest first: (namespace, activity, key, when
-- it happened, its arrival, limit). Gives event, state, kind, key, run.
select event, state, kind, key, run from semel_event_outcome
 where namespace = $1 and activity = $2 and cancel_key = $3 and (happened_at, arrival) < ($4, $5)
   and state in ('gathered', 'queued', 'paused', 'started')
 order by happened_at, arrival limit $6

-- name: end_outcomes
-- Events whose runs were cancelled, which others do not cancel again. Shared: namespace; rows: event, activity, reason.
update semel_event_outcome p set cancel_key = null, reason = o.reason
  from unnest($2::text[], $3::text[], $4::text[]) as o(event, activity, reason)
 where p.event = o.event and p.activity = o.activity and p.namespace = $1

-- name: due_event_flows
-- Somebody has to look at what waits in the flows of an activity: (namespace, activity).
update semel_event_flow set due_at = semel_now()
 where namespace = $1 and activity = $2 and due_at is null
   and kind in ('debounce', 'batch', 'start', 'singleton', 'pause')

-- name: pause_subscription
-- Keep events for an activity back: (namespace, id, note). One that is paused stays so since when it was.
update semel_subscription set paused_at = coalesce(paused_at, semel_now()), note = $3 where namespace = $1 and id = $2

-- name: resume_subscription
-- Let an activity run for events again: (namespace, id).
update semel_subscription set paused_at = null where namespace = $1 and id = $2

-- name: note_subscription
-- What somebody said when resuming an activity: (namespace, id, note).
update semel_subscription set note = $3 where namespace = $1 and id = $2

-- name: paused_outcomes
-- Events that came while an activity was paused, oldest first: (namespace, activity, limit). Gives event, envelope.
select p.event, e.envelope from semel_event_outcome p left join semel_event e on e.id = p.event and e.namespace = p.namespace
 where p.namespace = $1 and p.activity = $2 and p.state = 'paused' order by p.arrival limit $3
