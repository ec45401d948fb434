-- Events: what happened, which activities want to run for it, and what became of each delivery.
--
-- On a journal they are beside the executions that they start; beside a Temporal cluster they are in its records.

-- One event, however often it is delivered. `id`: as it stands in the ids of its runs. `activities`: those that have a run
-- for it, joined by commas. `problem`: why it is parked, or which filters could not be evaluated. `delivery`: a random
-- number of the delivery that was first, so that its sender knows it again after a lost reply.
create table semel_event (
  namespace text not null,
  id text not null,
  type text not null,
  source text not null,
  state text not null check (state in ('routed', 'unmatched', 'waiting', 'parked')),
  activities text not null,
  problem text,
  delivery integer not null,
  future integer not null,
  received_at integer not null,
  deliver_at integer,
  duplicates integer not null default 0,
  duplicate_at integer,
  fingerprint blob not null,
  envelope blob not null,
  primary key (id, namespace)
);

create index semel_event_age on semel_event (received_at, namespace);

create index semel_event_due on semel_event (deliver_at, namespace) where state = 'waiting';

create index semel_event_parked on semel_event (received_at, namespace) where state = 'parked';

-- An activity that wants events.
create table semel_subscription (
  namespace text not null,
  id text not null,
  version integer not null,
  owner text not null check (owner in ('code', 'file', 'api')),
  definition blob not null,
  created_at integer not null,
  changed_at integer not null,
  primary key (id, namespace)
);

-- A random number that changes with every change of a subscription: whoever routes an event by what it remembers of
-- them checks in the same statement that this is still so.
create table semel_router (
  namespace text primary key,
  stamp integer not null
);

-- Runs may be for events, too. SQLite: a check cannot be changed, so the table is made anew.
alter table semel_run rename to semel_run_before;

create table semel_run (
  namespace text not null,
  key text not null,
  generation integer not null,
  schedule text not null,
  slot integer not null,
  why text not null check (why in ('slot', 'catchup', 'compress', 'manual', 'backfill', 'event', 'replay')),
  execution text not null,
  version integer not null,
  window_start integer,
  slots integer not null,
  created_at integer not null,
  request blob,
  primary key (key, namespace, generation)
);

insert into semel_run select * from semel_run_before;

drop table semel_run_before;

create index semel_run_schedule on semel_run (schedule, namespace, slot);

create index semel_run_age on semel_run (created_at, namespace);

create index semel_run_unstarted on semel_run (namespace) where request is not null;
