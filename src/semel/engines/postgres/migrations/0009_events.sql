-- Events: what happened, which activities want to run for it, and what became of each delivery.
--
-- On a journal they are beside the executions that they start; beside a Temporal cluster they are in its records.

-- One event, however often it is delivered. `id`: as it stands in the ids of its runs. `activities`: those that have a run
-- for it, joined by commas. `problem`: why it is parked, or which filters could not be evaluated. `delivery`: a random
-- number of the delivery that was first, so that its sender knows it again after a lost reply.
create table semel_event (
  namespace text collate "C" not null,
  id text collate "C" not null,
  type text collate "C" not null,
  source text collate "C" not null,
  state text collate "C" not null check (state in ('routed', 'unmatched', 'waiting', 'parked')),
  activities text collate "C" not null,
  problem text,
  delivery bigint not null,
  future boolean not null,
  received_at bigint not null,
  deliver_at bigint,
  duplicates bigint not null default 0,
  duplicate_at bigint,
  fingerprint bytea not null,
  envelope bytea not null,
  primary key (id, namespace)
);

create index semel_event_age on semel_event (received_at, namespace);

create index semel_event_due on semel_event (deliver_at, namespace) where state = 'waiting';

create index semel_event_parked on semel_event (received_at, namespace) where state = 'parked';

-- An activity that wants events.
create table semel_subscription (
  namespace text collate "C" not null,
  id text collate "C" not null,
  version integer not null,
  owner text collate "C" not null check (owner in ('code', 'file', 'api')),
  definition bytea not null,
  created_at bigint not null,
  changed_at bigint not null,
  primary key (id, namespace)
);

-- A random number that changes with every change of a subscription: whoever routes an event by what it remembers of
-- them checks in the same statement that this is still so.
create table semel_router (
  namespace text collate "C" primary key,
  stamp bigint not null
);

-- Runs may be for events, too.
alter table semel_run drop constraint semel_run_why_check,
  add constraint semel_run_why_check
  check (why in ('slot', 'catchup', 'compress', 'manual', 'backfill', 'event', 'replay'));
