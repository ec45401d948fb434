-- Schedules: what is to run when, how far its slots are covered, and what became of each slot.
--
-- On a journal they are beside the executions that they start; beside a Temporal cluster they are in its records.

-- One schedule. `cursor`: at or before it no slot ever fires again. `due_at`: when somebody has to look at it next; null
-- while it is paused, and when it has no more slots. `state`: runs that are under way, slots that wait for them.
create table semel_schedule (
  namespace text not null,
  id text not null,
  version integer not null,
  owner text not null check (owner in ('code', 'file', 'api')),
  definition blob not null,
  cursor integer not null,
  due_at integer,
  paused_at integer,
  note text,
  state blob not null,
  created_at integer not null,
  changed_at integer not null,
  primary key (id, namespace)
);

create index semel_schedule_due on semel_schedule (due_at, namespace) where due_at is not null;

-- A run of a schedule: the execution that was started for a slot, for several slots that were compressed into one, or
-- by hand. `request` is kept until it has been started where that is not done in the same transaction.
create table semel_run (
  namespace text not null,
  key text not null,
  generation integer not null,
  schedule text not null,
  slot integer not null,
  why text not null check (why in ('slot', 'catchup', 'compress', 'manual', 'backfill')),
  execution text not null,
  version integer not null,
  window_start integer,
  slots integer not null,
  created_at integer not null,
  request blob,
  primary key (key, namespace, generation)
);

create index semel_run_schedule on semel_run (schedule, namespace, slot);
create index semel_run_slot on semel_run (slot, namespace);
create index semel_run_age on semel_run (created_at, namespace);
create index semel_run_unstarted on semel_run (namespace) where request is not null;

-- Slots that did not run, as ranges: a week of missed minutes is one row. `slot`: the run that they were compressed into.
create table semel_skipped (
  namespace text not null,
  schedule text not null,
  first_slot integer not null,
  last_slot integer not null,
  slots integer not null,
  reason text not null,
  slot integer,
  created_at integer not null,
  primary key (schedule, namespace, first_slot, reason)
) without rowid;

create index semel_skipped_age on semel_skipped (created_at, namespace);

-- Slots of the past that somebody asked for. `cursor`: slots at or before it were started, or left as they are. `due_at`:
-- when somebody has to look at it next. `definition`: of the schedule when it was asked for. `state`: runs that are under
-- way, and counts.
create table semel_backfill (
  namespace text not null,
  id text not null,
  schedule text not null,
  version integer not null,
  definition blob not null,
  start_at integer not null,
  end_at integer not null,
  rerun text not null check (rerun in ('missing', 'failed', 'all')),
  forced integer not null,
  max_active integer not null,
  phase text not null check (phase in ('running', 'paused', 'completed', 'cancelled')),
  note text,
  cursor integer not null,
  due_at integer,
  state blob not null,
  created_at integer not null,
  changed_at integer not null,
  finished_at integer,
  primary key (id, namespace)
);

create index semel_backfill_due on semel_backfill (due_at, namespace) where due_at is not null;
