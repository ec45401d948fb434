-- Records beside a Temporal cluster: what the cluster does not keep, or does not keep long enough.
--
-- An execution is named as the engine names it; nothing here refers to the tables of the journal, which stay empty
-- in a database that only holds records. due_at: when the cleaner looks at a row.
--
-- No index begins with the namespace, which says next to nothing: a plan that was made while a table was empty might
-- otherwise settle for it.

-- The ledger: the newest execution under each key whose window is longer than the cluster remembers. A row is
-- `running` from when its run reserved the key until it tells its end.
create table semel_record_key (
  namespace text not null,
  kind text not null,
  key text not null,
  execution text not null,
  name text not null,
  queue text not null,
  priority integer not null,
  max_attempts integer not null,
  attempt integer not null default 0,
  generation integer not null,
  previous_id text,
  fingerprint blob not null,
  status text not null default 'running'
    check (status in ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'timed_out')),
  created_at integer not null,
  finished_at integer,
  retention integer not null,
  dedup_window integer not null,
  due_at integer not null,
  stripped integer not null default 0,
  input blob,
  output blob,
  error blob,
  primary key (key, namespace, kind)
);

create unique index semel_record_key_execution on semel_record_key (execution, namespace);
create index semel_record_key_due on semel_record_key (due_at, namespace);

-- How many duplicates of an execution did not run, by reason.
create table semel_record_duplicate (
  namespace text not null,
  execution text not null,
  reason text not null,
  times integer not null,
  first_at integer not null,
  last_at integer not null,
  due_at integer not null,
  primary key (execution, namespace, reason)
) without rowid;

create index semel_record_duplicate_due on semel_record_duplicate (due_at, namespace);

-- A function of ctx.transaction that was run: this row is written in the same transaction as its effects.
create table semel_record_transaction (
  namespace text not null,
  execution text not null,
  step text not null,
  created_at integer not null,
  due_at integer not null,
  output blob,
  primary key (execution, namespace, step)
);

create index semel_record_transaction_due on semel_record_transaction (due_at, namespace);
