-- name: load_flows
-- Flows as a turn finds them, and what time it is. Rows: execution, position. Where the journal begins, what came
-- of what was before, how far it goes, and which claim wrote that last.
select f.execution, f.base, f.snapshot, f.parent_id, f.parks, (select semel_now()), j.n, coalesce(j.token, f.token)
  from unnest($1::text[], $2::bigint[]) as o(execution, position)
 cross join lateral (select * from semel_flow p where p.execution = o.execution limit 1) f
  left join lateral (
    select p.n, p.token from semel_journal p where p.execution = f.execution order by p.n desc limit 1) j on true

-- name: load_journal
-- What happened after a position, in order. Rows: execution, position.
select j.execution, j.n, j.body
  from unnest($1::text[], $2::bigint[]) as o(execution, position)
 cross join lateral (
   select * from semel_journal p where p.execution = o.execution and p.n > o.position order by p.n) j

-- name: load_inbox
-- What came, in order, at most a thousand for each flow. Rows: execution, position.
select i.execution, i.id, i.kind, i.name, i.ref, i.body, i.error, i.at
  from unnest($1::text[], $2::bigint[]) as o(execution, position)
 cross join lateral (
   select * from semel_inbox b where b.execution = o.execution order by b.id limit 1000) i
 order by i.execution, i.id

-- name: record
-- Write what happened, while the claim is this worker's and the row before is there: gives the tokens of those written.
-- Shared: worker; rows: lane, seq, token, execution, n, body. PostgreSQL: holds the worker's row, as `claim` does.
with me as materialized (
  select id from semel_worker where id = $1 for key share
)
insert into semel_journal (execution, n, token, body)
select o.execution, o.n, o.token, o.body
  from me, unnest($2::int[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bytea[])
    as o(lane, seq, token, execution, n, body)
 where o.token = any(array(
   select r.token from semel_ready r where r.lane = any($2) and r.seq = any($3) and r.owner = $1
      and r.execution = ($5)[array_position($4, r.token)]))
   and (exists (select from semel_journal p where p.execution = o.execution and p.n = o.n - 1 offset 0)
        or exists (select from semel_flow f where f.execution = o.execution and f.base = o.n - 1 offset 0))
on conflict do nothing returning token

-- name: recorded
-- Who wrote these rows: after a lost reply, whether it was committed. Rows: execution, n.
select o.execution, j.token from unnest($1::text[], $2::bigint[]) as o(execution, n)
 cross join lateral (select p.token from semel_journal p where p.execution = o.execution and p.n = o.n limit 1) j

-- name: held
-- Which of these claims are still this worker's, by token; nobody can take them until the end of the transaction. And
-- where the journals of their flows begin and end. Shared: worker; rows: lane, seq, token, execution.
select r.token, f.base,
       greatest(f.base, (select j.n from semel_journal j where j.execution = r.execution order by j.n desc limit 1))
  from semel_ready r
 cross join lateral (select p.base from semel_flow p where p.execution = r.execution limit 1) f
 where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1
   and r.execution = ($5::text[])[array_position($4::bigint[], r.token)] for update of r

-- name: consume
-- What came and was taken in. Rows: execution, id, at. Gives how many there were: under an id that was given out again,
-- after a restore, something else may have come at another time.
with taken as (
  delete from semel_inbox where ctid = any(array(
    select i.ctid from unnest($1::text[], $2::bigint[], $3::bigint[]) as o(execution, id, at)
     cross join lateral (
       select b.ctid from semel_inbox b where b.execution = o.execution and b.id = o.id and b.at = o.at limit 1) i))
  returning 1
)
select count(*) from taken

-- name: bind_children
-- What becomes of child flows when their parent ends. Rows: execution, on_close.
update semel_flow f set on_close = o.on_close from unnest($1::text[], $2::text[]) as o(execution, on_close)
 where f.execution = o.execution and f.execution = any($1)

-- name: add_waiter
-- Another flow waits for an execution that has not ended: (id, [flow, command and id] as JSON). Gives it if so.
update semel_execution
   set waiters = case when waiters is null then '[' || $2::text || ']'
                      else left(waiters, -1) || ',' || $2::text || ']' end
 where id = $1 and status in ('pending', 'running', 'waiting') returning id

-- name: share
-- Others than the workflow that asked for these executions want them too. Rows: execution.
-- PostgreSQL: whoever gives one of them up at this moment is waited for.
insert into semel_duplicate as d (execution, reason, times, first_at, last_at)
select x.id, 'shared', 1, (select semel_now()), (select semel_now())
  from unnest($1::text[]) as o(id) join semel_execution x on x.id = o.id
on conflict (execution, reason) do update set times = d.times + 1, last_at = excluded.last_at

-- name: living
-- Which of these executions have not ended. Rows: execution.
select x.id from unnest($1::text[]) as o(id) join semel_execution x on x.id = o.id
 where x.status in ('pending', 'running', 'waiting')

-- name: give_up
-- The workflow that asked for an execution stops wanting it: a row if others do want it. (id).
-- PostgreSQL: whoever wants to share it waits for the end of the transaction, by a row that counts nobody.
with held as (
  insert into semel_duplicate as d (execution, reason, times, first_at, last_at)
  select id, 'shared', 0, (select semel_now()), (select semel_now())
    from semel_execution where id = $1 and key is not null
  on conflict (execution, reason) do update set times = d.times
  returning times
)
select 1 from held where times > 0

-- name: deliver
-- Put something into the inbox of flows; what is for none that lives is dropped. Gives those that were reached.
-- Rows: execution, kind, name, ref, body, error.
insert into semel_inbox (execution, kind, name, ref, body, error, at)
select f.execution, o.kind, o.name, o.ref, o.body, o.error, (select semel_now())
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bytea[]) with ordinality
    as o(execution, kind, name, ref, body, error, place)
 cross join lateral (select p.execution from semel_flow p where p.execution = o.execution limit 1) f
 order by o.place
returning execution

-- name: publish
-- Values to be read from outside; the last one stays. Rows: execution, name, body.
insert into semel_published (execution, name, body) select * from unnest($1::text[], $2::text[], $3::bytea[])
on conflict (execution, name) do update set body = excluded.body

-- name: published
-- A value that a flow has published: (namespace, execution, name).
select p.body from semel_published p join semel_execution x on x.id = p.execution
 where x.namespace = $1 and p.execution = $2 and p.name = $3

-- name: set_attributes
-- Search attributes. Rows: execution, name, value.
insert into semel_attribute (execution, name, value) select * from unnest($1::text[], $2::text[], $3::text[])
on conflict (execution, name) do update set value = excluded.value

-- name: drop_attributes
-- Search attributes that are no more. Rows: execution, name.
delete from semel_attribute a using unnest($1::text[], $2::text[]) as o(execution, name)
 where a.execution = o.execution and a.name = o.name and a.execution = any($1)

-- name: attributes
-- The search attributes of an execution: (namespace, execution).
select a.name, a.value from semel_attribute a join semel_execution x on x.id = a.execution
 where x.namespace = $1 and a.execution = $2 order by a.name

-- name: lock_flows
-- Before they fall asleep: nothing can come for these until the end of the transaction. One for which something is
-- coming at this moment is passed over, and stays awake. Rows: execution.
select f.execution from semel_flow f where f.execution = any($1::text[]) order by f.execution for update skip locked

-- name: sleep_flows
-- Flows for which nothing has come fall asleep until something does, or until due_at. Gives those that do.
-- Shared: worker; rows: lane, seq, execution, due_at.
with asleep as (
  update semel_flow f set asleep = true, due_at = o.due_at, parked = null, parks = 0
    from unnest($2::int[], $3::bigint[], $4::text[], $5::bigint[]) as o(lane, seq, execution, due_at)
   where f.execution = o.execution and f.execution = any($4)
     and not exists (select from semel_inbox i where i.execution = o.execution offset 0)
  returning f.execution, o.lane, o.seq, o.due_at
), gone as (
  delete from semel_ready r
   where r.lane = any(array(select lane from asleep)) and r.seq = any(array(select seq from asleep)) and r.owner = $1
)
select execution from asleep
union all
select pg_notify('semel_later', min(due_at)::text)::text from asleep having min(due_at) is not null

-- name: park_flow
-- A flow whose code cannot go on: it is tried again after a while, or when a worker starts.
-- (worker, lane, seq, token, execution, error, retry after).
with parked as (
  update semel_flow f set asleep = true, due_at = (select semel_now()) + $7::bigint, parked = $6::bytea, parks = parks + 1
   where f.execution = $5 and exists (
     select from semel_ready r
      where r.lane = $2 and r.seq = $3 and r.owner = $1 and r.token = $4 and r.execution = $5)
  returning f.execution
)
delete from semel_ready r using parked p
 where r.lane = $2 and r.seq = $3 and r.owner = $1 and r.token = $4 and r.execution = $5 returning r.execution

-- name: unpark_flows
-- New code may be there: parked flows of these names are tried again now. (names). Gives how many.
-- Those put off for longer than ten minutes cost workers, see park_lost: that a new one is there is no reason to hurry.
with due as (
  update semel_flow set due_at = (select semel_now())
   where name = any($1::text[]) and parked is not null and asleep and due_at <= (select semel_now()) + 600000000
  returning execution
)
select count(*) from due

-- name: restart_flows
-- Flows that continue as new, or entities at rest: what came of the journal takes its place.
-- Rows: execution, base, snapshot, token of the claim that says so.
with begun as (
  update semel_flow f set base = o.base, snapshot = o.snapshot, token = o.token
    from unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[]) as o(execution, base, snapshot, token)
   where f.execution = o.execution and f.execution = any($1)
  returning f.execution, f.base
)
delete from semel_journal j using begun b where j.execution = b.execution and j.n <= b.base and j.execution = any($1)

-- name: forgive
-- Entities that have got on: losses of workers from before do not count. Shared: worker; rows: lane, seq.
update semel_ready set attempt = 1, crashes = 0
 where lane = any($2::int[]) and seq = any($3::bigint[]) and owner = $1

-- name: close_flows
-- Flows that have ended take nothing in any more. What their last run began with stays, before the first row of its
-- journal and with token 0. Rows: execution.
with closed as (
  delete from semel_flow where execution = any($1::text[]) returning execution, base, snapshot
), kept as (
  insert into semel_journal (execution, n, token, body)
  select execution, base, 0, snapshot from closed where snapshot is not null
  on conflict do nothing
)
delete from semel_inbox where execution = any($1)

-- name: children_of
-- Living child flows that do not outlive their parent as they are. Rows: execution. PostgreSQL: waits for what is
-- coming for the parents at this moment, so that the statements after this one see it.
with parents as materialized (
  select execution from semel_flow where execution = any($1::text[]) order by execution for update
)
select f.execution, f.on_close from parents p cross join lateral (
  select c.execution, c.on_close from semel_flow c where c.parent_id = p.execution and c.on_close <> 'abandon' offset 0) f

-- name: evict
-- Take the work row of a flow away, whoever has it: (execution). Gives its attempts.
with ready as (
  delete from semel_ready where (lane, seq) = (select lane, seq from semel_execution where id = $1) returning attempt
), later as (
  delete from semel_later where execution = $1 returning attempt
)
select attempt from ready union all select attempt from later

-- name: promote_flows
-- Sleeping flows whose time has come get something to do: (limit). Gives the lanes.
with due as (
  update semel_flow set asleep = false, due_at = null where execution = any(array(
    select execution from semel_flow where due_at <= (select semel_now())
     order by due_at limit $1 for update skip locked))
  returning lane, execution, name, max_attempts
), placed as (
  update semel_execution x set lane = d.lane, seq = default from due d where x.id = d.execution
  returning x.seq, d.*
), ready as (
  insert into semel_ready (lane, seq, execution, name, max_attempts)
  select lane, seq, execution, name, max_attempts from placed
  returning lane
)
select lane::text from ready
union all
select pg_notify('semel_work', semel_payload(string_agg(distinct lane::text, ',')))::text from ready having count(*) > 0

-- name: flow_kind
-- What an execution is, and whether its flow has begun: (namespace, id).
select x.kind, x.status, f.execution is not null,
       f.base > 0 or exists (select from semel_journal j where j.execution = x.id)
  from semel_execution x left join semel_flow f on f.execution = x.id where x.namespace = $1 and x.id = $2

-- name: past
-- Who a flow is, and what its run began with: (namespace, id). The last two are empty once it has ended.
select x.kind, x.name, x.key, l.queue, x.generation, coalesce(x.root_id, x.id), x.parent_id, x.input, f.base,
       f.snapshot
  from semel_execution x join semel_lane l on l.id = x.lane left join semel_flow f on f.execution = x.id
 where x.namespace = $1 and x.id = $2

-- name: parked
-- Flows whose code cannot go on, oldest first: (namespace, limit).
select x.kind, x.name, coalesce(x.key, x.id) from semel_flow f join semel_execution x on x.id = f.execution
 where f.parked is not null and x.namespace = $1 order by x.id limit $2

-- name: journal_of
-- The journal of an execution, in order: (id). A row with token 0 is no row, see close_flows.
select n, token, body from semel_journal where execution = $1 order by n

-- name: forget_flows
-- What happened to flows that are past their retention. Rows: id.
with j as (delete from semel_journal where execution = any($1::text[])),
     p as (delete from semel_published where execution = any($1))
delete from semel_attribute where execution = any($1)

-- name: forget_seen
-- The message keys of entities that are past their window. Rows: id.
delete from semel_seen where execution = any($1::text[])

-- name: mail
-- Flows for which something has come. Rows: execution.
select o.execution from unnest($1::text[]) as o(execution)
 where exists (
   select from semel_inbox i where i.execution = o.execution and i.kind in ('message', 'signal') offset 0)

-- name: see
-- Message keys that an entity is done with, and their answers; who asked is told.
-- Rows: execution, n, key, at, reply, mark; of a message that failed also name, body.
with seen as (
  insert into semel_seen (execution, n, key, at, reply, mark, name, body)
  select * from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bytea[], $6::text[], $7::text[],
                       $8::bytea[])
  on conflict (execution, key) do update set n = excluded.n, at = excluded.at, reply = excluded.reply,
    mark = excluded.mark, name = excluded.name, body = excluded.body
  returning execution
)
select pg_notify('semel_done', semel_payload(string_agg(distinct execution, ',')))::text from seen having count(*) > 0

-- name: unsee
-- Message keys past their window. Rows: execution, n.
delete from semel_seen where ctid = any(array(
  select s.ctid from unnest($1::text[], $2::bigint[]) as o(execution, n)
   cross join lateral (select p.ctid from semel_seen p where p.execution = o.execution and p.n = o.n limit 1) s))

-- name: load_seen
-- The message keys that entities have seen, oldest first. Rows: execution.
select s.execution, s.n, s.key, s.at, s.mark, case when s.name is not null then coalesce(length(s.body), 0) end
  from unnest($1::text[]) as o(execution)
 cross join lateral (select * from semel_seen p where p.execution = o.execution order by p.n) s

-- name: replies
-- Answers to messages, those that are there. Rows: execution, key.
select s.execution, s.key, s.reply, s.mark from unnest($1::text[], $2::text[]) as o(execution, key)
 cross join lateral (select * from semel_seen p where p.execution = o.execution and p.key = o.key limit 1) s
 where not exists (
   select from semel_inbox i where i.execution = s.execution and i.ref = s.key and i.kind = 'message' offset 0)

-- name: entities
-- The living entities under these keys. Shared: namespace; rows: key.
-- PostgreSQL: none of them can end until the end of the transaction.
with found as materialized (
  select x.key, x.id from unnest($2::text[]) as o(key)
   cross join lateral (
     select * from semel_execution p where p.key = o.key and p.namespace = $1 and p.kind = 'entity' and p.current
      limit 1) x
   order by x.id
)
select x.key, x.id from found x
 cross join lateral (select p.execution from semel_flow p where p.execution = x.id for update) f

-- name: inherit_seen
-- The message keys of an entity that has ended are those of the one that takes its place. Rows: old, new.
insert into semel_seen (execution, n, key, at, reply, mark, name, body)
select o.new, s.n, s.key, s.at, s.reply, s.mark, s.name, s.body from unnest($1::text[], $2::text[]) as o(old, new)
 cross join lateral (select from semel_flow f where f.execution = o.new limit 1) f
 cross join lateral (select * from semel_seen p where p.execution = o.old offset 0) s
on conflict do nothing

-- name: entity_state
-- What an entity was when it last rested: (namespace, key).
select f.snapshot from semel_execution x
 cross join lateral (select p.snapshot from semel_flow p where p.execution = x.id limit 1) f
 where x.namespace = $1 and x.kind = 'entity' and x.key = $2 and x.current

-- name: undelivered
-- Messages of a flow that failed or were refused: (namespace, kind, key).
select s.n, s.key, s.at, s.reply, s.name, s.body from semel_seen s
 where s.execution = any(array(
         select x.id from semel_execution x where x.namespace = $1 and x.kind = $2 and x.key = $3 and x.current))
   and (s.name is not null or s.key like ' conflict:%')

-- name: failed_messages
-- Entities with messages that failed, and how many; those that failed last first: (namespace, limit).
select x.key, count(*) from semel_seen s join semel_execution x on x.id = s.execution
 where s.name is not null and x.namespace = $1 and x.current group by x.key order by max(s.at) desc, x.key limit $2
