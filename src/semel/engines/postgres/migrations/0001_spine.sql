-- The spine: executions, the work that waits for a worker, and what is remembered of both.
--
-- An execution is one row for ever in semel_execution: written once when it is admitted and once when
-- it ends. While it is alive it also has one narrow row, either in semel_ready (may run now, or is
-- running) or in semel_later (delayed, or waiting for a retry). Finished work is never scanned to find
-- work. Times are microseconds since 1970 by the database's clock, as semel_now() tells it.

create function semel_now() returns bigint language sql stable parallel safe
  as $$ select (extract(epoch from now()) * 1000000)::bigint $$;

-- A lane is one first-in-first-out line of work: a queue, a priority, and what guards it.
-- task: set when the task has a rate limit of its own. keyed: rows carry a concurrency key.
-- suspect: rows whose worker died twice; they run one at a time, so that a poison task dies alone.
create table semel_lane (
  id integer generated always as identity primary key,
  namespace text collate "C" not null,
  queue text collate "C" not null,
  priority integer not null,
  task text collate "C" not null default '',
  keyed boolean not null default false,
  suspect boolean not null default false,
  unique (namespace, queue, priority, task, keyed, suspect)
);

-- The permanent record. `current` marks the newest execution under a key: the unique index below is
-- what makes a key run once. `root_id` is the first execution of a chain of redrives that has no key.
-- `token` is the fencing token (semel_ready.seq) of the claim that wrote last.
create table semel_execution (
  id text collate "C" primary key,
  namespace text collate "C" not null,
  kind text collate "C" not null default 'task',
  name text collate "C" not null,
  key text collate "C",
  current boolean not null default true,
  lane integer not null,
  status text collate "C" not null default 'pending'
    check (status in ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'timed_out')),
  generation integer not null default 0,
  previous_id text collate "C",
  root_id text collate "C",
  fingerprint bytea not null,
  input bytea,
  output bytea,
  error bytea,
  attempt integer not null default 0,
  max_attempts integer not null,
  concurrency_key text,
  retention bigint not null,
  dedup_window bigint not null,
  token bigint,
  stripped boolean not null default false,
  created_at bigint not null,
  run_at bigint,
  started_at bigint,
  finished_at bigint,
  check (key is null or length(key) between 1 and 255)
) with (fillfactor = 85);

create unique index semel_execution_key on semel_execution (key, namespace, kind)
  where key is not null and current;

-- Work that may run now. Claiming sets `owner` (no index holds it, so the update stays in its page),
-- ending deletes the row. `seq` only grows: it is both the order in the lane and the fencing token.
create table semel_ready (
  lane integer not null,
  seq bigint generated always as identity,
  execution text collate "C" not null,
  name text collate "C" not null,
  attempt integer not null default 0,
  max_attempts integer not null,
  crashes integer not null default 0,
  concurrency_key text collate "C",
  owner bigint,
  claimed_at bigint,
  cancel boolean not null default false,
  progress text,
  primary key (lane, seq)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0);

create unique index semel_ready_execution on semel_ready (execution);
create index semel_ready_concurrency on semel_ready (lane, concurrency_key, seq)
  where concurrency_key is not null;

-- Work that may not run yet.
create table semel_later (
  execution text collate "C" primary key,
  due_at bigint not null,
  lane integer not null,
  name text collate "C" not null,
  attempt integer not null default 0,
  max_attempts integer not null,
  crashes integer not null default 0,
  concurrency_key text collate "C"
);

create index semel_later_due on semel_later (due_at);

-- Workers that hold a lease. A worker whose row is gone owns nothing.
create table semel_worker (
  id bigint generated always as identity primary key,
  namespace text collate "C" not null,
  name text not null,
  queues text not null,
  started_at bigint not null,
  expires_at bigint not null
) with (fillfactor = 50);

-- Executions that ended other than well, so that they can be listed without a scan of the rest.
create table semel_dead (
  execution text collate "C" primary key,
  namespace text collate "C" not null,
  status text collate "C" not null check (status in ('failed', 'cancelled', 'timed_out'))
);

create index semel_dead_status on semel_dead (namespace, status, execution);

-- When to look at finished executions again: one slip for each settled batch, not for each row.
create table semel_slip (
  id bigint generated always as identity primary key,
  due_at bigint not null,
  executions text not null
);

create index semel_slip_due on semel_slip (due_at);

-- Duplicates that did not run, counted for each execution and reason.
create table semel_duplicate (
  execution text collate "C" not null,
  reason text collate "C" not null,
  times bigint not null,
  first_at bigint not null,
  last_at bigint not null,
  primary key (execution, reason)
);

-- Queue settings that every worker of the cluster obeys.
create table semel_queue (
  namespace text collate "C" not null,
  name text collate "C" not null,
  rate_limit text,
  concurrency integer,
  retention bigint,
  dedup_window bigint,
  primary key (namespace, name)
);

-- Token buckets of rate limits; the row is also the lock under which limited work is claimed.
create table semel_gate (
  namespace text collate "C" not null,
  scope text collate "C" not null,
  tokens double precision,
  refilled_at bigint,
  primary key (namespace, scope)
) with (fillfactor = 50);

-- Permits of concurrency limits. A permit counts only while its claim exists, so none can leak.
create table semel_permit (
  namespace text collate "C" not null,
  scope text collate "C" not null,
  lane integer not null,
  seq bigint not null,
  primary key (namespace, scope, lane, seq)
);

-- Executions as people read them.
create view semel_executions as
  select x.id, x.namespace, x.kind, x.name, x.key, l.queue, l.priority,
         case when x.status <> 'pending' then x.status when r.owner is not null then 'running'
              else 'pending' end as status,
         coalesce(r.attempt, d.attempt, x.attempt) as attempt, x.max_attempts, x.created_at,
         d.due_at as run_at, coalesce(r.claimed_at, x.started_at) as started_at, x.finished_at,
         x.retention, x.dedup_window, x.generation, x.previous_id, w.name as worker, r.progress,
         coalesce(r.cancel, false) as cancel_requested, x.error, x.stripped, x.current,
         x.fingerprint, x.input, x.output
    from semel_execution x
    join semel_lane l on l.id = x.lane
    left join semel_ready r on r.execution = x.id
    left join semel_later d on d.execution = x.id
    left join semel_worker w on w.id = r.owner;
