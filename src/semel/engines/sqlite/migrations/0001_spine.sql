-- The spine: executions, the work that waits for a worker, and what is remembered of both.
--
-- An execution is one row for ever in semel_execution: written once when it is admitted and once when
-- it ends. While it is alive it also has one narrow row, either in semel_ready (may run now, or is
-- running) or in semel_later (delayed, or waiting for a retry). Finished work is never scanned to find
-- work. Times are microseconds since 1970 by the machine's clock, as the function semel_now() that every
-- connection brings tells it.

-- A lane is one first-in-first-out line of work: a queue, a priority, and what guards it.
-- task: set when the task has a rate limit of its own. keyed: rows carry a concurrency key.
-- suspect: rows whose worker died twice; they run one at a time, so that a poison task dies alone.
create table semel_lane (
  id integer primary key autoincrement,
  namespace text not null,
  queue text not null,
  priority integer not null,
  task text not null default '',
  keyed integer not null default 0,
  suspect integer not null default 0,
  unique (namespace, queue, priority, task, keyed, suspect)
);

-- The permanent record. `current` marks the newest execution under a key: the unique index below is
-- what makes a key run once. `root_id` is the first execution of a chain of redrives that has no key.
-- (lane, seq) is where its work row is or was last, so that it is found without an index of its own; a new seq is
-- drawn whenever it becomes ready.
-- `token` is the fencing token (semel_ready.seq) of the claim that wrote last.
create table semel_execution (
  id text primary key,
  namespace text not null,
  kind text not null default 'task',
  name text not null,
  key text,
  current integer not null default 1,
  lane integer not null,
  status text not null default 'pending'
    check (status in ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'timed_out')),
  generation integer not null default 0,
  previous_id text,
  root_id text,
  fingerprint blob not null,
  input blob,
  output blob,
  error blob,
  attempt integer not null default 0,
  max_attempts integer not null,
  concurrency_key text,
  retention integer not null,
  dedup_window integer not null,
  seq integer,
  token integer,
  stripped integer not null default 0,
  created_at integer not null,
  run_at integer,
  started_at integer,
  finished_at integer,
  check (key is null or length(key) between 1 and 255)
) without rowid;

create unique index semel_execution_key on semel_execution (key, namespace, kind)
  where key is not null and current;

-- Work that may run now. Claiming sets `owner` (no index holds it),
-- ending deletes the row. `seq` only grows: it is both the order in the lane and the fencing token.
create table semel_ready (
  lane integer not null,
  seq integer primary key autoincrement,
  execution text not null,
  name text not null,
  attempt integer not null default 0,
  max_attempts integer not null,
  crashes integer not null default 0,
  concurrency_key text,
  owner integer,
  claimed_at integer,
  cancel integer not null default 0,
  progress text
);

-- The last seq is read before there is a first one.
insert into sqlite_sequence (name, seq) values ('semel_ready', 0);

create index semel_ready_lane on semel_ready (lane);
create index semel_ready_concurrency on semel_ready (lane, concurrency_key, seq)
  where concurrency_key is not null;

-- Work that may not run yet.
create table semel_later (
  execution text primary key,
  due_at integer not null,
  lane integer not null,
  name text not null,
  attempt integer not null default 0,
  max_attempts integer not null,
  crashes integer not null default 0,
  concurrency_key text
);

create index semel_later_due on semel_later (due_at);

-- Workers that hold a lease. A worker whose row is gone owns nothing.
create table semel_worker (
  id integer primary key autoincrement,
  namespace text not null,
  name text not null,
  queues text not null,
  started_at integer not null,
  expires_at integer not null
);

-- Executions that ended other than well, so that they can be listed without a scan of the rest.
create table semel_dead (
  execution text primary key,
  namespace text not null,
  status text not null check (status in ('failed', 'cancelled', 'timed_out'))
);

create index semel_dead_status on semel_dead (namespace, status, execution);

-- When to look at finished executions again: one slip for each settled batch, not for each row.
create table semel_slip (
  id integer primary key autoincrement,
  due_at integer not null,
  executions text not null
);

create index semel_slip_due on semel_slip (due_at);

-- Duplicates that did not run, counted for each execution and reason.
create table semel_duplicate (
  execution text not null,
  reason text not null,
  times integer not null,
  first_at integer not null,
  last_at integer not null,
  primary key (execution, reason)
);

-- Queue settings that every worker of the cluster obeys.
create table semel_queue (
  namespace text not null,
  name text not null,
  rate_limit text,
  concurrency integer,
  retention integer,
  dedup_window integer,
  primary key (namespace, name)
);

-- Token buckets of rate limits; the row is also the lock under which limited work is claimed.
create table semel_gate (
  namespace text not null,
  scope text not null,
  tokens real,
  refilled_at integer,
  primary key (namespace, scope)
);

-- Permits of concurrency limits. A permit counts only while its claim exists, so none can leak.
create table semel_permit (
  namespace text not null,
  scope text not null,
  lane integer not null,
  seq integer not null,
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
         coalesce(r.cancel, 0) as cancel_requested, x.error, x.stripped, x.current,
         x.fingerprint, x.input, x.output
    from semel_execution x
    join semel_lane l on l.id = x.lane
    left join semel_ready r on r.seq = x.seq
    left join semel_later d on d.execution = x.id
    left join semel_worker w on w.id = r.owner;

-- SQLite runs statements row by row, so what follows from a row being written is said once, here:
-- an admitted execution gets its work row ...
create trigger semel_admitted after insert on semel_execution when new.run_at is null
begin
  insert into semel_ready (lane, seq, execution, name, max_attempts, concurrency_key)
  values (new.lane, new.seq, new.id, new.name, new.max_attempts, new.concurrency_key);
end;

-- ... of which it knows where it is, however the row came to be ...
create trigger semel_placed after insert on semel_ready
  when (select x.seq from semel_execution x where x.id = new.execution) is not new.seq
begin
  update semel_execution set lane = new.lane, seq = new.seq where id = new.execution;
end;

create trigger semel_delayed after insert on semel_execution when new.run_at is not null
begin
  insert into semel_later (execution, due_at, lane, name, max_attempts, concurrency_key)
  values (new.id, new.run_at, new.lane, new.name, new.max_attempts, new.concurrency_key);
end;

-- ... and one that ends loses it, gets a slip for the cleaner, and is listed if it did not end well.
create trigger semel_ended after update of finished_at on semel_execution when new.finished_at is not null
begin
  delete from semel_ready where seq = new.seq;
  insert into semel_slip (due_at, executions)
  values (new.finished_at + max(new.retention, 5000000), new.id);
  insert into semel_dead (execution, namespace, status)
  select new.id, new.namespace, new.status where new.status <> 'completed';
end;
