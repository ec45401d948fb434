-- Events that are gathered, limited or kept back before they run: the state of each flow, and what became of each event.
--
-- Only activities with such options, and those that are paused, have rows here.

-- The state of one flow of an activity: the window of a key, the starts that a limit counts, the run that is going, a
-- start that is put off. `kind`: the option, or `start`, `cancel`, `pause`. `due_at`: when somebody has to look at it.
create table semel_event_flow (
  namespace text not null,
  kind text not null,
  activity text not null,
  key text not null,
  state blob not null,
  due_at integer,
  changed_at integer not null,
  primary key (activity, kind, key, namespace)
);

create index semel_event_flow_due on semel_event_flow (due_at, namespace) where due_at is not null;

-- What became of an event for one activity. `kind` and `key`: the flow that has it, while it waits. `run`: the key of its
-- run. `arrival`: counts the events of the activity as they arrive. `cancel_key`: by which other events cancel its run.
create table semel_event_outcome (
  namespace text not null,
  event text not null,
  activity text not null,
  state text not null check (state in ('gathered', 'queued', 'paused', 'started', 'dropped', 'cancels')),
  kind text,
  key text,
  run text,
  reason text,
  arrival integer not null,
  happened_at integer not null,
  cancel_key text,
  primary key (event, activity, namespace)
);

create index semel_event_outcome_run on semel_event_outcome (run, namespace) where run is not null;

create index semel_event_outcome_paused on semel_event_outcome (activity, namespace, arrival) where state = 'paused';

create index semel_event_outcome_cancel on semel_event_outcome (activity, cancel_key, namespace, happened_at)
  where cancel_key is not null;

-- An operator may pause what an activity runs for events.
alter table semel_subscription add column paused_at integer;

alter table semel_subscription add column note text;
