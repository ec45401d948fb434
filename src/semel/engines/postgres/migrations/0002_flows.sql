-- Flows: workflows and entities. What happened to them, what came for them, and whether they sleep.
--
-- A flow is an execution that is run in turns. While it lives it has one row in semel_flow; when there is
-- something to do it also has a row in semel_ready, like any other work. A turn reads what came (semel_inbox), runs
-- until it waits, and writes what happened (semel_journal), what it asked for and that it sleeps in one transaction.

-- Whose step an execution is, and which commands of flows wait for its end: JSON, [[flow, command], ...].
alter table semel_execution add column parent_id text collate "C", add column waiters text;

create index semel_execution_parent on semel_execution (parent_id) where parent_id is not null;

-- asleep: nothing to do until something comes, or until due_at. base: rows of the journal up to here are gone, and
-- `snapshot` is what came of them. parked: why it cannot go on. on_close: what becomes of it when its parent ends.
create table semel_flow (
  execution text collate "C" primary key,
  lane integer not null,
  name text collate "C" not null,
  max_attempts integer not null,
  asleep boolean not null default false,
  due_at bigint,
  base bigint not null default 0,
  snapshot bytea,
  parked bytea,
  parks integer not null default 0,
  parent_id text collate "C",
  on_close text collate "C" not null default 'abandon' check (on_close in ('abandon', 'cancel', 'terminate'))
) with (fillfactor = 70);

create index semel_flow_due on semel_flow (due_at) where due_at is not null;
create index semel_flow_parked on semel_flow (name) where parked is not null;
create index semel_flow_parent on semel_flow (parent_id) where parent_id is not null;

-- One row for each commit of a flow. `token` is the claim that wrote it.
create table semel_journal (
  execution text collate "C" not null,
  n bigint not null,
  token bigint not null,
  body bytea not null,
  primary key (execution, n)
);

-- What came for a flow and was not yet taken in. kind: done (ref: command, name: status), signal (ref: dedup key),
-- message (ref: dedup key, reply: wanted), cancel.
create table semel_inbox (
  id bigint generated always as identity,
  execution text collate "C" not null,
  kind text collate "C" not null,
  name text collate "C" not null default '',
  ref text collate "C",
  body bytea,
  error bytea,
  at bigint not null,
  primary key (execution, id)
);

-- Values that flows publish, and words to find them by.
create table semel_published (
  execution text collate "C" not null,
  name text collate "C" not null,
  body bytea not null,
  primary key (execution, name)
);

create table semel_attribute (
  execution text collate "C" not null,
  name text collate "C" not null,
  value text collate "C" not null,
  primary key (execution, name)
);

create index semel_attribute_value on semel_attribute (name, value, execution);

-- Message keys an entity has seen, in the order in which it saw them, with the answers they got.
create table semel_seen (
  execution text collate "C" not null,
  n bigint not null,
  key text collate "C" not null,
  at bigint not null,
  reply bytea,
  primary key (execution, n)
);

create unique index semel_seen_key on semel_seen (execution, key);

-- A flow gets its row with its execution.
create function semel_open() returns trigger language plpgsql as $$
begin
  insert into semel_flow (execution, lane, name, max_attempts, parent_id)
  values (new.id, new.lane, new.name, new.max_attempts, new.parent_id);
  return null;
end $$;

create trigger semel_opened after insert on semel_execution
  for each row when (new.kind <> 'task') execute function semel_open();

-- Who waits for an execution hears of its end in the transaction in which it ends.
create function semel_tell() returns trigger language plpgsql as $$
begin
  insert into semel_inbox (execution, kind, name, ref, body, error, at)
  select f.execution, 'done', new.status, w ->> 1, new.output, new.error, new.finished_at
    from json_array_elements(new.waiters::json) w
   cross join lateral (select p.execution from semel_flow p where p.execution = w ->> 0 limit 1) f;
  return null;
end $$;

create trigger semel_told after update of finished_at on semel_execution
  for each row when (new.finished_at is not null and new.waiters is not null) execute function semel_tell();

-- What comes for sleeping flows wakes them, once for all that a statement brings. Their rows are locked first, in a
-- statement of its own: a flow that is falling asleep at this moment has then either seen what came, or is seen
-- asleep. Rows are named by arrays, as in `claim`. News are told in parts that a notification can hold.
create function semel_wake() returns trigger language plpgsql as $$
declare
  known text[];
  sleeping text[];
  awake text[];
  lanes text;
begin
  select array_agg(f.execution), array_agg(f.execution) filter (where f.asleep),
         array_agg(f.execution) filter (where not f.asleep)
    into known, sleeping, awake
    from (select p.execution, p.asleep from semel_flow p
           where p.execution = any(array(select c.execution from came c)) order by p.execution for update) f;
  if (select count(distinct c.execution) from came c) > coalesce(cardinality(known), 0) then
    delete from semel_inbox i
     where i.execution = any(array(select c.execution from came c where c.execution <> all(coalesce(known, '{}'))));
  end if;
  if sleeping is not null then
    update semel_flow set asleep = false, due_at = null where execution = any(sleeping);
    with placed as (
      update semel_execution x
         set lane = (select f.lane from semel_flow f where f.execution = x.id), seq = default
       where x.id = any(sleeping) returning x.lane, x.seq, x.id, x.name, x.max_attempts
    ), ready as (
      insert into semel_ready (lane, seq, execution, name, max_attempts)
      select lane, seq, id, name, max_attempts from placed returning lane
    )
    select string_agg(distinct lane::text, ',') into lanes from ready;
    perform pg_notify('semel_work', lanes);
  end if;
  for place in 1 .. coalesce(cardinality(awake), 0) by 200 loop
    perform pg_notify('semel_news', array_to_string(awake[place : place + 199], ','));
  end loop;
  return null;
end $$;

create trigger semel_came after insert on semel_inbox
  referencing new table as came for each statement execute function semel_wake();

-- Executions as people read them: a sleeping flow is waiting.
create or replace view semel_executions as
  select x.id, x.namespace, x.kind, x.name, x.key, l.queue, l.priority,
         case when x.status <> 'pending' then x.status when r.owner is not null then 'running'
              when f.asleep then 'waiting' else 'pending' end as status,
         coalesce(r.attempt, d.attempt, x.attempt) as attempt, x.max_attempts, x.created_at,
         coalesce(d.due_at, f.due_at) as run_at, coalesce(r.claimed_at, x.started_at) as started_at, x.finished_at,
         x.retention, x.dedup_window, x.generation, x.previous_id, w.name as worker, r.progress,
         coalesce(r.cancel, false) as cancel_requested, coalesce(f.parked, x.error) as error, x.stripped, x.current,
         x.fingerprint, x.input, x.output, x.parent_id
    from semel_execution x
    join semel_lane l on l.id = x.lane
    left join semel_ready r on r.lane = x.lane and r.seq = x.seq
    left join semel_later d on d.execution = x.id
    left join semel_flow f on f.execution = x.id
    left join semel_worker w on w.id = r.owner;
