-- name: add_backfill
-- A backfill that is new: (namespace, id, schedule, version, definition, start_at, end_at, rerun, forced, max_active, cursor,
-- state). A taken id is passed over.
insert into semel_backfill (namespace, id, schedule, version, definition, start_at, end_at, rerun, forced, max_active,
  phase, cursor, due_at, state, created_at, changed_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'running', $11, semel_now(), $12, semel_now(), semel_now())
on conflict do nothing
returning pg_notify('semel_schedule', schedule)::text

-- name: backfill_of
-- One backfill: (namespace, id).
select id, schedule, version, definition, start_at, end_at, rerun, forced, max_active, phase, note, cursor, due_at, state,
  created_at, changed_at, finished_at, semel_now()
  from semel_backfill where namespace = $1 and id = $2

-- name: lock_backfill
-- One backfill, which nobody else changes until the end of this transaction: (namespace, id).
select id, schedule, version, definition, start_at, end_at, rerun, forced, max_active, phase, note, cursor, due_at, state,
  created_at, changed_at, finished_at, semel_now()
  from semel_backfill where namespace = $1 and id = $2 for update

-- name: list_backfills
-- Backfills of a schedule, or of all if it is null, newest first: (namespace, schedule, limit).
select id, schedule, version, definition, start_at, end_at, rerun, forced, max_active, phase, note, cursor, due_at, state,
  created_at, changed_at, finished_at, semel_now()
  from semel_backfill where namespace = $1 and ($2::text is null or schedule = $2) order by created_at desc, id limit $3

-- name: find_due_backfills
-- Backfills that somebody has to look at now, the longest due first: (namespace, limit). Nothing is locked.
select id, schedule, version, definition, start_at, end_at, rerun, forced, max_active, phase, note, cursor, due_at, state,
  created_at, changed_at, finished_at, semel_now()
  from semel_backfill where namespace = $1 and due_at <= (select semel_now()) order by due_at limit $2

-- name: lock_due_backfill
-- A backfill that is still due, which nobody else looks at until the end of this transaction; one that somebody else has
-- locked is passed over: (namespace, id).
select id, schedule, version, definition, start_at, end_at, rerun, forced, max_active, phase, note, cursor, due_at, state,
  created_at, changed_at, finished_at, semel_now()
  from semel_backfill where namespace = $1 and id = $2 and due_at <= (select semel_now()) for update skip locked

-- name: advance_backfill
-- How far a backfill has come: (namespace, id, cursor, phase, due_at, state, note, changed).
update semel_backfill
   set cursor = $3, phase = $4, due_at = $5, state = $6, note = $7,
       changed_at = case when $8 = 1 then semel_now() else changed_at end,
       finished_at = case when $4::text in ('completed', 'cancelled') then coalesce(finished_at, semel_now()) end
 where namespace = $1 and id = $2

-- name: change_backfill
-- A backfill is paused, resumed or cancelled: (namespace, id, phase, note). It is looked at, for the runs under way.
update semel_backfill
   set phase = $3, note = coalesce($4, note), due_at = semel_now(), changed_at = semel_now(),
       finished_at = case when $3::text = 'cancelled' then semel_now() end
 where namespace = $1 and id = $2
returning pg_notify('semel_schedule', schedule)::text

-- name: put_off_backfill
-- A backfill that is due is looked at later: (namespace, id, microseconds).
update semel_backfill set due_at = semel_now() + $3
 where namespace = $1 and id = $2 and due_at <= semel_now()

-- name: slot_runs
-- Runs of the slots of a schedule after one time and until another: (namespace, schedule, after, until). Those that were
-- triggered by hand are runs of no slot. A slot's newest generation comes last.
select slot, generation, window_start, slots, execution, case when request is null then 1 else 0 end
  from semel_run
 where namespace = $1 and schedule = $2 and slot > $3 and slot <= $4 and why <> 'manual'
 order by slot, generation

-- name: covering_run
-- The next run of several slots at a time or after it: (namespace, schedule, time).
select slot, generation, window_start, slots, execution, case when request is null then 1 else 0 end
  from semel_run where namespace = $1 and schedule = $2 and slot >= $3 and slots > 1 order by slot limit 1

-- name: slot_skips
-- Ranges of skipped slots that reach into (after, until], in order: (namespace, schedule, after, until). Ranges of slots
-- do not overlap, so none begins before the last one that begins by then.
select first_slot, last_slot, reason from semel_skipped
 where namespace = $1 and schedule = $2 and first_slot <= $4 and last_slot > $3
   and reason not in ('excluded', 'before start')
   and first_slot >= coalesce(
     (select first_slot from semel_skipped
       where namespace = $1 and schedule = $2 and first_slot <= $3 and reason not in ('excluded', 'before start')
       order by first_slot desc limit 1), 0)
 order by first_slot

-- name: oldest_record
-- The first slot of a schedule that is on record; those that were asked for tell nothing of others: (namespace, schedule).
select min(at) from (
  select * from (select slot as at from semel_run
    where namespace = $1 and schedule = $2 and why not in ('manual', 'backfill') order by slot limit 1) r
  union all
  select * from (select first_slot as at from semel_skipped
    where namespace = $1 and schedule = $2 order by first_slot limit 1) s) o

-- name: runs_by_generation
-- Runs by key and generation: their executions, and whether they were started. Shared: namespace; rows: key, generation.
select r.key, r.generation, r.execution, case when r.request is null then 1 else 0 end
  from unnest($2::text[], $3::int[]) as o(key, generation)
  join semel_run r on r.key = o.key and r.generation = o.generation and r.namespace = $1

-- name: forget_backfills
-- Forget backfills that have ended before a time, some at once: (namespace, time, limit).
delete from semel_backfill where ctid = any(array(
  select ctid from semel_backfill where namespace = $1 and finished_at < $2 and due_at is null limit $3))
returning id
