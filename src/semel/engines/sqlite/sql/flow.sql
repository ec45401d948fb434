-- name: load_flows
-- Flows as a turn finds them, and what time it is. Rows: execution, position. Where the journal begins, what came
-- of what was before, how far it goes, and which claim wrote that last.
select f.execution, f.base, f.snapshot, f.parent_id, f.parks, semel_now(), j.n, coalesce(j.token, f.token)
  from json_each(?1) o cross join semel_flow f on f.execution = o.value ->> 0
  left join semel_journal j on j.execution = f.execution
   and j.n = (select max(p.n) from semel_journal p where p.execution = f.execution)

-- name: load_journal
-- What happened after a position, in order. Rows: execution, position.
select j.execution, j.n, j.body
  from json_each(?1) o cross join semel_journal j on j.execution = o.value ->> 0 and j.n > o.value ->> 1
 order by j.execution, j.n

-- name: load_inbox
-- What came, in order, at most a thousand for each flow. Rows: execution, position.
select i.execution, i.id, i.kind, i.name, i.ref, i.body, i.error, i.at
  from json_each(?1) o cross join semel_inbox i on i.execution = o.value ->> 0
 where i.id <= coalesce((select b.id from semel_inbox b where b.execution = o.value ->> 0
                          order by b.id limit 1 offset 999), 9223372036854775807)
 order by i.execution, i.id

-- name: record
-- Write what happened, while the claim is this worker's and the row before is there: gives the tokens of those written.
-- Shared: worker; rows: lane, seq, token, execution, n, body.
insert into semel_journal (execution, n, token, body)
select r.execution, o.value ->> 4, r.token, bytes_at(o.value ->> 5)
  from json_each(?2) o cross join semel_ready r
    on r.seq = o.value ->> 1 and r.owner = ?1 and r.token = o.value ->> 2 and r.execution = o.value ->> 3
 where exists (select 1 from semel_journal p where p.execution = r.execution and p.n = (o.value ->> 4) - 1)
    or exists (select 1 from semel_flow f where f.execution = r.execution and f.base = (o.value ->> 4) - 1)
on conflict do nothing returning token

-- name: recorded
-- Who wrote these rows: after a lost reply, whether it was committed. Rows: execution, n.
select j.execution, j.token from json_each(?1) o
 cross join semel_journal j on j.execution = o.value ->> 0 and j.n = o.value ->> 1

-- name: held
-- Which of these claims are still this worker's, by token; nobody can take them until the end of the transaction. And
-- where the journals of their flows begin and end. Shared: worker; rows: lane, seq, token, execution.
select r.token, f.base,
       coalesce((select max(j.n) from semel_journal j where j.execution = r.execution and j.n > f.base), f.base)
  from json_each(?2) o cross join semel_ready r
    on r.seq = o.value ->> 1 and r.owner = ?1 and r.token = o.value ->> 2 and r.execution = o.value ->> 3
  join semel_flow f on f.execution = r.execution

-- name: consume
-- What came and was taken in. Rows: execution, id, at. Gives how many there were: under an id that was given out again,
-- after a restore, something else may have come at another time.
delete from semel_inbox where id in (
  select i.id from json_each(?1) o cross join semel_inbox i
    on i.id = o.value ->> 1 and i.execution = o.value ->> 0 and i.at = o.value ->> 2);
select changes()

-- name: bind_children
-- What becomes of child flows when their parent ends. Rows: execution, on_close.
update semel_flow set on_close = o.on_close
  from (select value ->> 0 as execution, value ->> 1 as on_close from json_each(?1)) o
 where semel_flow.execution = o.execution

-- name: add_waiter
-- Another flow waits for an execution that has not ended: (id, [flow, command and id] as JSON). Gives it if so.
update semel_execution
   set waiters = case when waiters is null then '[' || ?2 || ']'
                      else substr(waiters, 1, length(waiters) - 1) || ',' || ?2 || ']' end
 where id = ?1 and status in ('pending', 'running', 'waiting') returning id

-- name: share
-- Others than the workflow that asked for these executions want them too. Rows: execution.
insert into semel_duplicate as d (execution, reason, times, first_at, last_at)
select x.id, 'shared', 1, semel_now(), semel_now()
  from json_each(?1) o cross join semel_execution x on x.id = o.value ->> 0
 where true
on conflict (execution, reason) do update set times = d.times + 1, last_at = excluded.last_at

-- name: living
-- Which of these executions have not ended. Rows: execution.
select x.id from json_each(?1) o cross join semel_execution x on x.id = o.value ->> 0
 where x.status in ('pending', 'running', 'waiting')

-- name: give_up
-- The workflow that asked for an execution stops wanting it: a row if others do want it. (id).
-- SQLite: the transaction holds the only write lock.
select 1 from semel_duplicate where execution = ?1 and reason = 'shared'

-- name: deliver
-- Put something into the inbox of flows; what is for none that lives is dropped. Gives those that were reached.
-- Rows: execution, kind, name, ref, body, error.
insert into semel_inbox (execution, kind, name, ref, body, error, at)
select f.execution, o.value ->> 1, o.value ->> 2, o.value ->> 3, bytes_at(o.value ->> 4), bytes_at(o.value ->> 5), semel_now()
  from json_each(?1) o cross join semel_flow f on f.execution = o.value ->> 0
returning execution

-- name: publish
-- Values to be read from outside; the last one stays. Rows: execution, name, body.
insert into semel_published (execution, name, body)
select value ->> 0, value ->> 1, bytes_at(value ->> 2) from json_each(?1) where true
on conflict (execution, name) do update set body = excluded.body

-- name: published
-- A value that a flow has published: (namespace, execution, name).
select p.body from semel_published p join semel_execution x on x.id = p.execution
 where x.namespace = ?1 and p.execution = ?2 and p.name = ?3

-- name: set_attributes
-- Search attributes. Rows: execution, name, value.
insert into semel_attribute (execution, name, value)
select value ->> 0, value ->> 1, value ->> 2 from json_each(?1) where true
on conflict (execution, name) do update set value = excluded.value

-- name: drop_attributes
-- Search attributes that are no more. Rows: execution, name.
delete from semel_attribute where (execution, name) in (select value ->> 0, value ->> 1 from json_each(?1))

-- name: attributes
-- The search attributes of an execution: (namespace, execution).
select a.name, a.value from semel_attribute a join semel_execution x on x.id = a.execution
 where x.namespace = ?1 and a.execution = ?2 order by a.name

-- name: lock_flows
-- Before they fall asleep: nothing can come for these until the end of the transaction. Rows: execution.
-- SQLite: the transaction holds the only write lock.
select f.execution from json_each(?1) o cross join semel_flow f on f.execution = o.value

-- name: sleep_flows
-- Flows for which nothing has come fall asleep until something does, or until due_at. Gives those that do.
-- Shared: worker; rows: lane, seq, execution, due_at.
update semel_flow set asleep = 1, due_at = o.due_at, parked = null, parks = 0
  from (select value ->> 2 as execution, value ->> 3 as due_at from json_each(?2)) o
 where semel_flow.execution = o.execution
   and not exists (select 1 from semel_inbox i where i.execution = o.execution)
returning execution;
delete from semel_ready where owner = ?1 and seq in (
  select o.value ->> 1 from json_each(?2) o cross join semel_flow f on f.execution = o.value ->> 2 and f.asleep)

-- name: park_flow
-- A flow whose code cannot go on: it is tried again after a while, or when a worker starts.
-- (worker, lane, seq, token, execution, error, retry after).
update semel_flow set asleep = 1, due_at = semel_now() + ?7, parked = ?6, parks = parks + 1
 where execution = ?5 and exists (
   select 1 from semel_ready r
    where r.lane = ?2 and r.seq = ?3 and r.owner = ?1 and r.token = ?4 and r.execution = ?5);
delete from semel_ready
 where lane = ?2 and seq = ?3 and owner = ?1 and token = ?4 and execution = ?5 returning execution

-- name: unpark_flows
-- New code may be there: parked flows of these names are tried again now. (names). Gives how many.
-- Those put off for longer than ten minutes cost workers, see park_lost: that a new one is there is no reason to hurry.
update semel_flow set due_at = semel_now()
 where name in (select value from json_each(?1)) and parked is not null and asleep
   and due_at <= semel_now() + 600000000;
select changes()

-- name: restart_flows
-- Flows that continue as new, or entities at rest: what came of the journal takes its place.
-- Rows: execution, base, snapshot, token of the claim that says so.
update semel_flow set base = o.base, snapshot = o.snapshot, token = o.token
  from (select value ->> 0 as execution, value ->> 1 as base, bytes_at(value ->> 2) as snapshot, value ->> 3 as token
          from json_each(?1)) o
 where semel_flow.execution = o.execution;
delete from semel_journal where (execution, n) in (
  select j.execution, j.n from json_each(?1) o
   cross join semel_journal j on j.execution = o.value ->> 0 and j.n <= o.value ->> 1)

-- name: forgive
-- Entities that have got on: losses of workers from before do not count. Shared: worker; rows: lane, seq.
update semel_ready set attempt = 1, crashes = 0
 where seq in (select value ->> 1 from json_each(?2)) and owner = ?1

-- name: close_flows
-- Flows that have ended take nothing in any more. What their last run began with stays, before the first row of its
-- journal and with token 0. Rows: execution.
insert into semel_journal (execution, n, token, body)
select f.execution, f.base, 0, f.snapshot from json_each(?1) o
 cross join semel_flow f on f.execution = o.value ->> 0 and f.snapshot is not null where true
on conflict do nothing;
delete from semel_flow where execution in (select value ->> 0 from json_each(?1));
delete from semel_inbox where execution in (select value ->> 0 from json_each(?1))

-- name: children_of
-- Living child flows that do not outlive their parent as they are. Rows: execution.
select f.execution, f.on_close from json_each(?1) o
 cross join semel_flow f on f.parent_id = o.value ->> 0 and f.on_close <> 'abandon'

-- name: evict
-- Take the work row of a flow away, whoever has it: (execution). Gives its attempts.
delete from semel_ready where seq = (select x.seq from semel_execution x where x.id = ?1) returning attempt;
delete from semel_later where execution = ?1 returning attempt

-- name: promote_flows
-- Sleeping flows whose time has come get something to do: (limit). Gives the lanes.
insert into semel_ready (lane, execution, name, max_attempts)
select lane, execution, name, max_attempts from semel_flow where due_at <= semel_now() order by due_at limit ?1
returning cast(lane as text);
update semel_flow set asleep = 0, due_at = null where execution in (
  select execution from semel_flow where due_at <= semel_now() order by due_at limit ?1)

-- name: flow_kind
-- What an execution is, and whether its flow has begun: (namespace, id).
select x.kind, x.status, f.execution is not null,
       f.base > 0 or exists (select 1 from semel_journal j where j.execution = x.id)
  from semel_execution x left join semel_flow f on f.execution = x.id where x.namespace = ?1 and x.id = ?2

-- name: past
-- Who a flow is, and what its run began with: (namespace, id). The last two are empty once it has ended.
select x.kind, x.name, x.key, l.queue, x.generation, coalesce(x.root_id, x.id), x.parent_id, x.input, f.base,
       f.snapshot
  from semel_execution x join semel_lane l on l.id = x.lane left join semel_flow f on f.execution = x.id
 where x.namespace = ?1 and x.id = ?2

-- name: parked
-- Flows whose code cannot go on, oldest first: (namespace, limit).
select x.kind, x.name, coalesce(x.key, x.id) from semel_flow f cross join semel_execution x on x.id = f.execution
 where f.parked is not null and x.namespace = ?1 order by x.id limit ?2

-- name: journal_of
-- The journal of an execution, in order: (id). A row with token 0 is no row, see close_flows.
select n, token, body from semel_journal where execution = ?1 order by n

-- name: forget_flows
-- What happened to flows that are past their retention. Rows: id.
delete from semel_journal where execution in (select value ->> 0 from json_each(?1));
delete from semel_published where execution in (select value ->> 0 from json_each(?1));
delete from semel_attribute where execution in (select value ->> 0 from json_each(?1))

-- name: forget_seen
-- The message keys of entities that are past their window. Rows: id.
delete from semel_seen where execution in (select value ->> 0 from json_each(?1))

-- name: mail
-- Flows for which something has come. Rows: execution.
select o.value ->> 0 from json_each(?1) o
 where exists (
   select 1 from semel_inbox i where i.execution = o.value ->> 0 and i.kind in ('message', 'signal'))

-- name: see
-- Message keys that an entity is done with, and their answers.
-- Rows: execution, n, key, at, reply, mark; of a message that failed also name, body.
insert into semel_seen (execution, n, key, at, reply, mark, name, body)
select value ->> 0, value ->> 1, value ->> 2, value ->> 3, bytes_at(value ->> 4), value ->> 5, value ->> 6,
       bytes_at(value ->> 7)
  from json_each(?1) where true
on conflict (execution, key) do update set n = excluded.n, at = excluded.at, reply = excluded.reply,
  mark = excluded.mark, name = excluded.name, body = excluded.body

-- name: unsee
-- Message keys past their window. Rows: execution, n.
delete from semel_seen where (execution, n) in (
  select s.execution, s.n from json_each(?1) o
   cross join semel_seen s on s.execution = o.value ->> 0 and s.n = o.value ->> 1)

-- name: load_seen
-- The message keys that entities have seen, oldest first. Rows: execution.
select s.execution, s.n, s.key, s.at, s.mark, case when s.name is not null then coalesce(length(s.body), 0) end
  from json_each(?1) o cross join semel_seen s on s.execution = o.value ->> 0
 order by s.execution, s.n

-- name: replies
-- Answers to messages, those that are there. Rows: execution, key.
select s.execution, s.key, s.reply, s.mark from json_each(?1) o
 cross join semel_seen s on s.execution = o.value ->> 0 and s.key = o.value ->> 1
 where not exists (select 1 from semel_inbox i where i.execution = s.execution and i.ref = s.key and i.kind = 'message')

-- name: entities
-- The living entities under these keys. Shared: namespace; rows: key.
select x.key, x.id from json_each(?2) o
 cross join semel_execution x on x.key = o.value ->> 0 and x.namespace = ?1 and x.kind = 'entity' and x.current
  join semel_flow f on f.execution = x.id

-- name: inherit_seen
-- The message keys of an entity that has ended are those of the one that takes its place. Rows: old, new.
insert into semel_seen (execution, n, key, at, reply, mark, name, body)
select f.execution, s.n, s.key, s.at, s.reply, s.mark, s.name, s.body from json_each(?1) o
 cross join semel_flow f on f.execution = o.value ->> 1 cross join semel_seen s on s.execution = o.value ->> 0
 where true
on conflict do nothing

-- name: entity_state
-- What an entity was when it last rested: (namespace, key).
select f.snapshot from semel_execution x join semel_flow f on f.execution = x.id
 where x.namespace = ?1 and x.kind = 'entity' and x.key = ?2 and x.current

-- name: undelivered
-- Messages of a flow that failed or were refused: (namespace, kind, key).
select s.n, s.key, s.at, s.reply, s.name, s.body
  from semel_execution x join semel_seen s on s.execution = x.id
 where x.namespace = ?1 and x.kind = ?2 and x.key = ?3 and x.current
   and (s.name is not null or s.key like ' conflict:%')

-- name: failed_messages
-- Entities with messages that failed, and how many; those that failed last first: (namespace, limit).
select x.key, count(*) from semel_seen s join semel_execution x on x.id = s.execution
 where s.name is not null and x.namespace = ?1 and x.current group by x.key order by max(s.at) desc, x.key limit ?2
