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
  namespace text collate "C" not null,
  kind text collate "C" not null,
  key text collate "C" not null,
  execution text collate "C" not null,
  name text collate "C" not null,
  queue text collate "C" not null,
  priority integer not null,
  max_attempts integer not null,
  attempt integer not null default 0,
  generation integer not null,
  previous_id text collate "C",
  fingerprint bytea not null,
  status text collate "C" not null default 'running'
    check (status in ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'timed_out')),
  created_at bigint not null,
  finished_at bigint,
  retention bigint not null,
  dedup_window bigint not null,
  due_at bigint not null,
  stripped boolean not null default false,
  input bytea,
  output bytea,
  error bytea,
  primary key (key, namespace, kind)
);

create unique index semel_record_key_execution on semel_record_key (execution, namespace);
create index semel_record_key_due on semel_record_key (due_at, namespace);

-- How many duplicates of an execution did not run, by reason.
create table semel_record_duplicate (
  namespace text collate "C" not null,
  execution text collate "C" not null,
  reason text collate "C" not null,
  times bigint not null,
  first_at bigint not null,
  last_at bigint not null,
  due_at bigint not null,
  primary key (execution, namespace, reason)
);

create index semel_record_duplicate_due on semel_record_duplicate (due_at, namespace);

-- A function of ctx.transaction that was run: this row is written in the same transaction as its effects.
create table semel_record_transaction (
  namespace text collate "C" not null,
  execution text collate "C" not null,
  step text collate "C" not null,
  created_at bigint not null,
  due_at bigint not null,
  output bytea,
  primary key (execution, namespace, step)
);

create index semel_record_transaction_due on semel_record_transaction (due_at, namespace);
