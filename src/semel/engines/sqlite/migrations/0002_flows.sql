-- Flows: workflows and entities. What happened to them, what came for them, and whether they sleep.
--
-- A flow is an execution that is run in turns. While it lives it has one row in semel_flow; when there is
-- something to do it also has a row in semel_ready, like any other work. A turn reads what came (semel_inbox), runs
-- until it waits, and writes what happened (semel_journal), what it asked for and that it sleeps in one transaction.

-- Whose step an execution is, and which commands of flows wait for its end: JSON, [[flow, command], ...].
alter table semel_execution add column parent_id text;

alter table semel_execution add column waiters text;

create index semel_execution_parent on semel_execution (parent_id) where parent_id is not null;

-- asleep: nothing to do until something comes, or until due_at. base: rows of the journal up to here are gone, and
-- `snapshot` is what came of them. parked: why it cannot go on. on_close: what becomes of it when its parent ends.
create table semel_flow (
  execution text primary key,
  lane integer not null,
  name text not null,
  max_attempts integer not null,
  asleep integer not null default 0,
  due_at integer,
  base integer not null default 0,
  snapshot blob,
  parked blob,
  parks integer not null default 0,
  parent_id text,
  on_close text not null default 'abandon' check (on_close in ('abandon', 'cancel', 'terminate'))
) without rowid;

create index semel_flow_due on semel_flow (due_at) where due_at is not null;
create index semel_flow_parked on semel_flow (name) where parked is not null;
create index semel_flow_parent on semel_flow (parent_id) where parent_id is not null;

-- One row for each commit of a flow. `token` is the claim that wrote it.
create table semel_journal (
  execution text not null,
  n integer not null,
  token integer not null,
  body blob not null,
  primary key (execution, n)
) without rowid;

-- What came for a flow and was not yet taken in. kind: done (ref: command, name: status), signal (ref: dedup key),
-- message (ref: dedup key, reply: wanted), cancel.
create table semel_inbox (
  id integer primary key autoincrement,
  execution text not null,
  kind text not null,
  name text not null default '',
  ref text,
  body blob,
  error blob,
  at integer not null
);

create index semel_inbox_execution on semel_inbox (execution, id);

-- Values that flows publish, and words to find them by.
create table semel_published (
  execution text not null,
  name text not null,
  body blob not null,
  primary key (execution, name)
) without rowid;

create table semel_attribute (
  execution text not null,
  name text not null,
  value text not null,
  primary key (execution, name)
) without rowid;

create index semel_attribute_value on semel_attribute (name, value, execution);

-- Message keys an entity has seen, in the order in which it saw them, with the answers they got.
create table semel_seen (
  execution text not null,
  n integer not null,
  key text not null,
  at integer not null,
  reply blob,
  primary key (execution, n)
) without rowid;

create unique index semel_seen_key on semel_seen (execution, key);

-- A flow gets its row with its execution.
create trigger semel_opened after insert on semel_execution when new.kind <> 'task'
begin
  insert into semel_flow (execution, lane, name, max_attempts, parent_id)
  values (new.id, new.lane, new.name, new.max_attempts, new.parent_id);
end;

-- Who waits for an execution hears of its end in the transaction in which it ends.
create trigger semel_told after update of finished_at on semel_execution
  when new.finished_at is not null and new.waiters is not null
begin
  insert into semel_inbox (execution, kind, name, ref, body, error, at)
  select f.execution, 'done', new.status, w.value ->> 1, new.output, new.error, new.finished_at
    from json_each(new.waiters) w join semel_flow f on f.execution = w.value ->> 0;
end;

-- What comes for a sleeping flow wakes it.
create trigger semel_came after insert on semel_inbox
begin
  insert into semel_ready (lane, execution, name, max_attempts)
  select lane, execution, name, max_attempts from semel_flow where execution = new.execution and asleep;
  update semel_flow set asleep = 0, due_at = null where execution = new.execution and asleep;
  delete from semel_inbox
   where id = new.id and not exists (select 1 from semel_flow where execution = new.execution);
end;

-- Executions as people read them: a sleeping flow is waiting.
drop view semel_executions;

create view semel_executions as
  select x.id, x.namespace, x.kind, x.name, x.key, l.queue, l.priority,
         case when x.status <> 'pending' then x.status when r.owner is not null then 'running'
              when f.asleep then 'waiting' else 'pending' end as status,
         coalesce(r.attempt, d.attempt, x.attempt) as attempt, x.max_attempts, x.created_at,
         coalesce(d.due_at, f.due_at) as run_at, coalesce(r.claimed_at, x.started_at) as started_at, x.finished_at,
         x.retention, x.dedup_window, x.generation, x.previous_id, w.name as worker, r.progress,
         coalesce(r.cancel, 0) as cancel_requested, coalesce(f.parked, x.error) as error, x.stripped, x.current,
         x.fingerprint, x.input, x.output, x.parent_id
    from semel_execution x
    join semel_lane l on l.id = x.lane
    left join semel_ready r on r.seq = x.seq
    left join semel_later d on d.execution = x.id
    left join semel_flow f on f.execution = x.id
    left join semel_worker w on w.id = r.owner;
