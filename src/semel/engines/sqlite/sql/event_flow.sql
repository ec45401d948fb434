-- name: open_event_flows
-- Flows that are asked for the first time. Shared: namespace; rows: kind, activity, key.
insert into semel_event_flow (namespace, kind, activity, key, state, changed_at)
select ?1, value ->> 0, value ->> 1, value ->> 2, x'', semel_now() from json_each(?2) where true
on conflict do nothing

-- name: lock_event_flows, event_flows_of
-- Flows that nobody else changes until the end of this transaction (event_flows_of: which anybody may), and what time it is.
-- Shared: namespace; rows: kind, activity, key. Gives kind, activity, key, state, due_at, now.
select f.kind, f.activity, f.key, f.state, f.due_at, semel_now()
  from json_each(?2) o cross join semel_event_flow f
    on f.activity = o.value ->> 1 and f.kind = o.value ->> 0 and f.key = o.value ->> 2 and f.namespace = ?1

-- name: find_due_event_flows
-- Flows that somebody has to look at now, the longest due first: (namespace, limit). As lock_event_flows gives them.
select kind, activity, key, state, due_at, semel_now() from semel_event_flow
 where namespace = ?1 and due_at <= semel_now() order by due_at limit ?2

-- name: lock_due_event_flows
-- The same, which nobody else changes until the end of this transaction; those that somebody else has locked are
-- passed over: (namespace, limit).
select kind, activity, key, state, due_at, semel_now() from semel_event_flow
 where namespace = ?1 and due_at <= semel_now() order by due_at limit ?2

-- name: save_event_flows
-- How flows stand. Shared: namespace; rows: kind, activity, key, state, due_at.
insert into semel_event_flow (namespace, kind, activity, key, state, due_at, changed_at)
select ?1, value ->> 0, value ->> 1, value ->> 2, bytes_at(value ->> 3), value ->> 4, semel_now()
  from json_each(?2) where true
on conflict (activity, kind, key, namespace) do update
  set state = excluded.state, due_at = excluded.due_at, changed_at = excluded.changed_at

-- name: drop_event_flows
-- Flows that are over. Shared: namespace; rows: kind, activity, key.
delete from semel_event_flow where rowid in (
  select f.rowid from json_each(?2) o cross join semel_event_flow f
    on f.activity = o.value ->> 1 and f.kind = o.value ->> 0 and f.key = o.value ->> 2 and f.namespace = ?1)

-- name: forget_event_flows
-- Forget flows that nobody waits for and that nothing has come to since a time, some at once: (namespace, time, limit).
delete from semel_event_flow where rowid in (
  select rowid from semel_event_flow
   where namespace = ?1 and changed_at < ?2 and due_at is null and kind <> 'pause' limit ?3)
returning key

-- name: add_outcomes
-- What became of events that have come to an activity. One that comes again takes the place of what was.
-- Shared: namespace; rows: event, activity, state, kind, key, run, reason, arrival, happened_at, cancel_key.
insert into semel_event_outcome (namespace, event, activity, state, kind, key, run, reason, arrival, happened_at,
  cancel_key)
select ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
  value ->> 8, value ->> 9
  from json_each(?2) where true
on conflict (event, activity, namespace) do update
  set state = excluded.state, kind = excluded.kind, key = excluded.key, run = excluded.run, reason = excluded.reason,
      arrival = excluded.arrival, happened_at = excluded.happened_at, cancel_key = excluded.cancel_key

-- name: change_outcomes
-- What became of events that had waited. Shared: namespace; rows: event, activity, state, kind, key, run, reason.
update semel_event_outcome
   set state = o.value ->> 2, kind = o.value ->> 3, key = o.value ->> 4, run = o.value ->> 5, reason = o.value ->> 6
  from json_each(?2) o
 where semel_event_outcome.event = o.value ->> 0 and semel_event_outcome.activity = o.value ->> 1
   and semel_event_outcome.namespace = ?1

-- name: outcomes_of
-- What became of events, for each activity with such options. Shared: namespace; rows: event.
-- Gives event, activity, state, kind, run, reason, when somebody looks at it next.
select p.event, p.activity, p.state, p.kind, p.run, p.reason, f.due_at
  from json_each(?2) o cross join semel_event_outcome p on p.event = o.value ->> 0 and p.namespace = ?1
  left join semel_event_flow f
    on f.activity = p.activity and f.kind = p.kind and f.key = p.key and f.namespace = p.namespace
 order by p.activity

-- name: events_of_runs
-- The events that runs have gathered, oldest first. Shared: namespace; rows: run. Gives run, event.
select p.run, p.event from json_each(?2) o cross join semel_event_outcome p on p.run = o.value ->> 0 and p.namespace = ?1
 order by p.run, p.happened_at, p.arrival

-- name: envelopes_of
-- Events as they came. Shared: namespace; rows: id. Gives id, envelope.
select e.id, e.envelope from json_each(?2) o cross join semel_event e on e.id = o.value ->> 0 and e.namespace = ?1

-- name: forget_outcomes
-- Forget what became of events. Shared: namespace; rows: event.
delete from semel_event_outcome where rowid in (
  select p.rowid from json_each(?2) o cross join semel_event_outcome p on p.event = o.value ->> 0 and p.namespace = ?1)

-- name: cancellable_outcomes
-- Events that run or wait and happened before an event that cancels them, oldest first: (namespace, activity, key, when
-- it happened, its arrival, limit). Gives event, state, kind, key, run.
select event, state, kind, key, run from semel_event_outcome
 where namespace = ?1 and activity = ?2 and cancel_key = ?3 and (happened_at, arrival) < (?4, ?5)
   and state in ('gathered', 'queued', 'paused', 'started')
 order by happened_at, arrival limit ?6

-- name: end_outcomes
-- Events whose runs were cancelled, which others do not cancel again. Shared: namespace; rows: event, activity, reason.
update semel_event_outcome set cancel_key = null, reason = o.value ->> 2
  from json_each(?2) o
 where semel_event_outcome.event = o.value ->> 0 and semel_event_outcome.activity = o.value ->> 1
   and semel_event_outcome.namespace = ?1

-- name: due_event_flows
-- Somebody has to look at what waits in the flows of an activity: (namespace, activity).
update semel_event_flow set due_at = semel_now()
 where namespace = ?1 and activity = ?2 and due_at is null
   and kind in ('debounce', 'batch', 'start', 'singleton', 'pause')

-- name: pause_subscription
-- Keep events for an activity back: (namespace, id, note). One that is paused stays so since when it was.
update semel_subscription set paused_at = coalesce(paused_at, semel_now()), note = ?3 where namespace = ?1 and id = ?2

-- name: resume_subscription
-- Let an activity run for events again: (namespace, id).
update semel_subscription set paused_at = null where namespace = ?1 and id = ?2

-- name: note_subscription
-- What somebody said when resuming an activity: (namespace, id, note).
update semel_subscription set note = ?3 where namespace = ?1 and id = ?2

-- name: paused_outcomes
-- Events that came while an activity was paused, oldest first: (namespace, activity, limit). Gives event, envelope.
select p.event, e.envelope from semel_event_outcome p left join semel_event e on e.id = p.event and e.namespace = p.namespace
 where p.namespace = ?1 and p.activity = ?2 and p.state = 'paused' order by p.arrival limit ?3
