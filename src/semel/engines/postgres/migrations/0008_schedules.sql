-- Schedules: what is to run when, how far its slots are covered, and what became of each slot.
--
-- On a journal they are beside the executions that they start; beside a Temporal cluster they are in its records.

-- One schedule. `cursor`: at or before it no slot ever fires again. `due_at`: when somebody has to look at it next; null
-- while it is paused, and when it has no more slots. `state`: runs that are under way, slots that wait for them.
create table semel_schedule (
  namespace text collate "C" not null,
  id text collate "C" not null,
  version integer not null,
  owner text collate "C" not null check (owner in ('code', 'file', 'api')),
  definition bytea not null,
  cursor bigint not null,
  due_at bigint,
  paused_at bigint,
  note text,
  state bytea not null,
  created_at bigint not null,
  changed_at bigint not null,
  primary key (id, namespace)
);

create index semel_schedule_due on semel_schedule (due_at, namespace) where due_at is not null;

-- A run of a schedule: the execution that was started for a slot, for several slots that were compressed into one, or
-- by hand. `request` is kept until it has been started where that is not done in the same transaction.
create table semel_run (
  namespace text collate "C" not null,
  key text collate "C" not null,
  generation integer not null,
  schedule text collate "C" not null,
  slot bigint not null,
  why text collate "C" not null check (why in ('slot', 'catchup', 'compress', 'manual', 'backfill')),
  execution text collate "C" not null,
  version integer not null,
  window_start bigint,
  slots integer not null,
  created_at bigint not null,
  request bytea,
  primary key (key, namespace, generation)
);

create index semel_run_schedule on semel_run (schedule, namespace, slot);
create index semel_run_slot on semel_run (slot, namespace);
create index semel_run_age on semel_run (created_at, namespace);
create index semel_run_unstarted on semel_run (namespace) where request is not null;

-- Slots that did not run, as ranges: a week of missed minutes is one row. `slot`: the run that they were compressed into.
create table semel_skipped (
  namespace text collate "C" not null,
  schedule text collate "C" not null,
  first_slot bigint not null,
  last_slot bigint not null,
  slots integer not null,
  reason text collate "C" not null,
  slot bigint,
  created_at bigint not null,
  primary key (schedule, namespace, first_slot, reason)
);

create index semel_skipped_age on semel_skipped (created_at, namespace);

-- Slots of the past that somebody asked for. `cursor`: slots at or before it were started, or left as they are. `due_at`:
-- when somebody has to look at it next. `definition`: of the schedule when it was asked for. `state`: runs that are under
-- way, and counts.
create table semel_backfill (
  namespace text collate "C" not null,
  id text collate "C" not null,
  schedule text collate "C" not null,
  version integer not null,
  definition bytea not null,
  start_at bigint not null,
  end_at bigint not null,
  rerun text collate "C" not null check (rerun in ('missing', 'failed', 'all')),
  forced integer not null,
  max_active integer not null,
  phase text collate "C" not null check (phase in ('running', 'paused', 'completed', 'cancelled')),
  note text,
  cursor bigint not null,
  due_at bigint,
  state bytea not null,
  created_at bigint not null,
  changed_at bigint not null,
  finished_at bigint,
  primary key (id, namespace)
);

create index semel_backfill_due on semel_backfill (due_at, namespace) where due_at is not null;
