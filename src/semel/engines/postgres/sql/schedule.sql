-- name: schedule_of
-- One schedule: (namespace, id). As find_due_schedules gives it.
select id, version, owner, definition, cursor, due_at, paused_at, note, state, created_at, changed_at, semel_now()
  from semel_schedule where namespace = $1 and id = $2

-- name: lock_schedule
-- One schedule, which nobody else changes until the end of this transaction: (namespace, id).
select id, version, owner, definition, cursor, due_at, paused_at, note, state, created_at, changed_at, semel_now()
  from semel_schedule where namespace = $1 and id = $2 for update

-- name: list_schedules
-- Schedules by their ids, after one of them: (namespace, after, limit).
select id, version, owner, definition, cursor, due_at, paused_at, note, state, created_at, changed_at, semel_now()
  from semel_schedule where namespace = $1 and id > $2 order by id limit $3

-- name: find_due_schedules
-- Schedules that somebody has to look at now, the longest due first: (namespace, limit). Nothing is locked.
select id, version, owner, definition, cursor, due_at, paused_at, note, state, created_at, changed_at, semel_now()
  from semel_schedule where namespace = $1 and due_at <= (select semel_now()) order by due_at limit $2

-- name: lock_due_schedules
-- Those of these schedules that are still due, which nobody else looks at until the end of this transaction; those that
-- somebody else has locked are passed over. Shared: namespace; rows: id.
select s.id, version, owner, definition, cursor, due_at, paused_at, note, state, created_at, changed_at, semel_now()
  from semel_schedule s
 where s.id = any($2::text[]) and s.namespace = $1 and s.due_at <= (select semel_now())
 order by s.id for update skip locked

-- name: lock_next_schedules
-- Schedules that are due, the longest due first, which nobody else looks at until the end of this transaction; those
-- that somebody else has locked are passed over: (namespace, limit).
select id, version, owner, definition, cursor, due_at, paused_at, note, state, created_at, changed_at, semel_now()
  from semel_schedule where namespace = $1 and due_at <= (select semel_now()) order by due_at limit $2
 for update skip locked

-- name: late_schedules
-- How many schedules have been due for longer than $2 microseconds, up to a limit, since when, and the time: (namespace,
-- microseconds, limit).
select count(*), min(due_at), (select semel_now()) from (
  select due_at from semel_schedule where namespace = $1 and due_at <= (select semel_now()) - $2 order by due_at limit $3) s

-- name: next_due_schedule
-- When somebody has to look at a schedule or a backfill next, and what time it is: (namespace).
select (select min(due_at) from (
  select min(due_at) as due_at from semel_schedule where namespace = $1 and due_at is not null
  union all
  select min(due_at) from semel_backfill where namespace = $1 and due_at is not null) d), semel_now()

-- name: add_schedule
-- A schedule that is new: (namespace, id, owner, definition, cursor, due_at, state). A taken id is passed over.
insert into semel_schedule (namespace, id, version, owner, definition, cursor, due_at, state, created_at, changed_at)
values ($1, $2, 1, $3, $4, coalesce($5::bigint, semel_now()), coalesce($6::bigint, semel_now()), $7, semel_now(),
  semel_now())
on conflict do nothing
returning pg_notify('semel_schedule', id)::text

-- name: change_schedule
-- Another definition of a schedule: (namespace, id, owner, definition). It is looked at anew, unless it is paused.
update semel_schedule
   set version = version + 1, owner = $3, definition = $4, changed_at = semel_now(),
       due_at = case when paused_at is null then semel_now() end
 where namespace = $1 and id = $2
returning pg_notify('semel_schedule', id)::text

-- name: pause_schedule
-- Let no slot of a schedule fire: (namespace, id, note, state). One that is paused stays so since when it was.
update semel_schedule set paused_at = coalesce(paused_at, semel_now()), note = $3, state = $4, due_at = null
 where namespace = $1 and id = $2

-- name: resume_schedule
-- Let slots of a schedule fire again: (namespace, id, note, state).
update semel_schedule set paused_at = null, note = $3, state = $4, due_at = semel_now()
 where namespace = $1 and id = $2
returning pg_notify('semel_schedule', id)::text

-- name: delete_schedule
-- Remove a schedule: (namespace, id). What is known of its runs and of its skipped slots stays.
delete from semel_schedule where namespace = $1 and id = $2 returning id

-- name: advance_schedules
-- How far schedules have come. Shared: namespace; rows: id, cursor, due_at, state.
update semel_schedule s set cursor = o.cursor, due_at = o.due_at, state = o.state
  from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bytea[]) as o(id, cursor, due_at, state)
 where s.id = o.id and s.namespace = $1

-- name: put_off_schedule
-- A schedule that is due is looked at later: (namespace, id, microseconds).
update semel_schedule set due_at = semel_now() + $3
 where namespace = $1 and id = $2 and due_at <= semel_now()

-- name: add_runs
-- Runs that were started, or are to be (with a request). One that is there already stays as it is.
-- Shared: namespace; rows: key, generation, schedule, slot, why, execution, version, window_start, slots, request.
insert into semel_run (namespace, key, generation, schedule, slot, why, execution, version, window_start, slots,
  created_at, request)
select $1, o.key, o.generation, o.schedule, o.slot, o.why, o.execution, o.version, o.window_start, o.slots, semel_now(),
  o.request
  from unnest($2::text[], $3::int[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::int[], $9::bigint[],
    $10::int[], $11::bytea[])
    as o(key, generation, schedule, slot, why, execution, version, window_start, slots, request)
on conflict do nothing

-- name: drop_runs
-- Runs that nobody began in time are none. Shared: namespace; rows: key.
delete from semel_run where namespace = $1 and key = any($2::text[])

-- name: add_skipped
-- Slots that did not run. A range that goes on takes the place of its beginning.
-- Shared: namespace; rows: schedule, first_slot, last_slot, slots, reason, slot.
insert into semel_skipped (namespace, schedule, first_slot, last_slot, slots, reason, slot, created_at)
select $1, o.*, semel_now()
  from unnest($2::text[], $3::bigint[], $4::bigint[], $5::int[], $6::text[], $7::bigint[]) as o
on conflict (schedule, namespace, first_slot, reason) do update
  set last_slot = excluded.last_slot, slots = excluded.slots, slot = excluded.slot

-- name: run_states
-- How executions stand: id, status, when they ended, how many attempts. Rows: id.
select x.id, x.status, x.finished_at from unnest($1::text[]) as o(id) join semel_execution x on x.id = o.id

-- name: schedule_runs
-- Runs of a schedule, newest slot first: (namespace, schedule, before, limit).
select key, generation, slot, why, execution, version, window_start, slots, created_at, request is null
  from semel_run where namespace = $1 and schedule = $2 and slot < $3 order by slot desc, generation desc limit $4

-- name: schedule_run
-- A run by its key, the newest generation: (namespace, key).
select schedule, generation, slot, why, execution, version, window_start, slots, created_at
  from semel_run where namespace = $1 and key = $2 order by generation desc limit 1

-- name: schedule_skips
-- Ranges of slots of a schedule that did not run, newest first: (namespace, schedule, before, limit).
select first_slot, last_slot, slots, reason, slot, created_at
  from semel_skipped where namespace = $1 and schedule = $2 and first_slot < $3 order by first_slot desc limit $4

-- name: skipped_slot
-- The range of skipped slots that a slot is in, the newest: (namespace, schedule, slot).
select first_slot, last_slot, slots, reason, slot, created_at
  from semel_skipped where namespace = $1 and schedule = $2 and first_slot <= $3 and last_slot >= $3
 order by first_slot desc limit 1

-- name: outputs_of
-- What executions gave. Rows: id.
select x.id, x.output from unnest($1::text[]) as o(id) join semel_execution x on x.id = o.id
 where x.output is not null

-- name: unstarted_runs
-- Runs that are on record and not yet started, oldest first: (namespace, limit).
select key, generation, schedule, request from semel_run
 where namespace = $1 and request is not null order by created_at limit $2

-- name: run_started
-- A run has been started: (namespace, key, generation, execution).
update semel_run set execution = $4, request = null where namespace = $1 and key = $2 and generation = $3

-- name: forget_runs
-- Forget runs that are older than a time, some at once: (namespace, time, limit).
delete from semel_run where ctid = any(array(
  select ctid from semel_run where namespace = $1 and created_at < $2 and request is null limit $3))
returning key

-- name: forget_skipped
-- Forget skipped slots that are older than a time, some at once: (namespace, time, limit).
delete from semel_skipped where ctid = any(array(
  select ctid from semel_skipped where namespace = $1 and created_at < $2 limit $3))
returning schedule
