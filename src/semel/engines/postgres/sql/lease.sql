-- name: register_worker
-- A new lease: (random number, namespace, name, queues, lease in microseconds). Asked for again, it is the same one.
insert into semel_worker (id, namespace, name, queues, started_at, expires_at, lease) overriding system value
values ($1, $2, $3, $4, (select semel_now()), (select semel_now()) + $5::bigint, $5)
on conflict (id) do update set expires_at = excluded.expires_at returning id

-- name: declare_functions
-- The functions that a worker has: (worker, JSON: name to where its code is).
update semel_worker set functions = $2 where id = $1

-- name: pulse
-- Renew the lease and look around, in one statement: (worker, lease, lanes, names). No row: the lease is lost.
-- Gives: now, the next lease of another to run out, the lengths of leases that have run out (or end later than they can,
-- since the clock was set back), the next delayed task or sleeping flow, is there work, how lanes and limits look,
-- how often the lease was renewed, and a number that changes when the table is made or filled anew (its file: a
-- restore drops or truncates it; so does `vacuum full`, after which a look too many does no harm).
update semel_worker w set expires_at = (select semel_now()) + $2::bigint, beats = w.beats + 1 where w.id = $1
returning (select semel_now()),
  (select min(o.expires_at) from semel_worker o where o.id <> $1 and o.expires_at >= (select semel_now())),
  (select string_agg(distinct coalesce(o.lease, 30000000)::text, ',') from semel_worker o where o.id <> $1
      and (o.expires_at < (select semel_now()) or o.expires_at > (select semel_now()) + 2 * o.lease)),
  least((select d.due_at from semel_later d order by d.due_at limit 1),
        (select f.due_at from semel_flow f where f.due_at is not null order by f.due_at limit 1)),
  exists (select from unnest($3::int[]) as l(lane) cross join lateral (
            select 1 from semel_ready r where r.lane = l.lane and r.owner is null and r.name = any($4)
             limit 1) r),
  (select concat_ws(' ', count(*), sum(l.id)) from semel_lane l) || coalesce((select string_agg(concat_ws(' ', q.namespace, q.name, q.rate_limit,
     q.concurrency, q.retention), ',') from semel_queue q), ''), w.beats,
  pg_relation_filenode(w.tableoid)::bigint

-- name: note_progress
-- What running tasks say of themselves. Shared: worker; rows: lane, seq, token, execution, progress.
update semel_ready r set progress = ($6::text[])[array_position($4::bigint[], r.token)]
 where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1
   and r.execution = ($5::text[])[array_position($4, r.token)]

-- name: cancels
-- Which of this worker's tasks someone wants cancelled. Shared: worker; rows: lane, seq, token, execution.
select r.execution from semel_ready r
 where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1 and r.cancel
   and r.execution = ($5::text[])[array_position($4::bigint[], r.token)]

-- name: bury_workers
-- Workers whose lease had run out at a certain time lose it: (time or null for now, lengths of leases or null for all).
-- One whose lease ends later than it can has not beaten since the clock was set back. PostgreSQL: one that is claiming
-- right now is passed over.
delete from semel_worker where id in (
  select id from semel_worker
   where (expires_at < coalesce($1::bigint, (select semel_now())) or expires_at > (select semel_now()) + 2 * lease)
     and ($2::bigint[] is null or coalesce(lease, 30000000) = any($2))
     for update skip locked)
returning id, name

-- name: retire_worker
-- A worker that stops gives its lease back.
delete from semel_worker where id = $1 returning id

-- name: take_back
-- The tasks of these workers, out of their hands: (workers).
delete from semel_ready where owner = any($1::bigint[])
returning execution, lane, name, attempt, max_attempts, crashes, concurrency_key, cancel, owner

-- name: take_these
-- These claims, out of the hands of a worker that has lost track of them. Shared: worker; rows: lane, seq, token, execution.
delete from semel_ready r
 where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1
   and r.execution = ($5::text[])[array_position($4::bigint[], r.token)]
returning execution, lane, name, attempt, max_attempts, crashes, concurrency_key, cancel, owner

-- name: orphans
-- Owners that have no lease; there are none unless someone edited the tables by hand.
select distinct r.owner from semel_ready r
 where r.owner is not null and not exists (select from semel_worker w where w.id = r.owner)

-- name: put_back
-- Lost tasks wait again, at the end of their lane. Rows: lane, execution, name, attempt, max_attempts,
-- crashes, concurrency_key.
with lost as (
  update semel_execution x set lane = o.lane, seq = default
    from unnest($1::int[], $2::text[], $3::text[], $4::int[], $5::int[], $6::int[], $7::text[])
      as o(lane, execution, name, attempt, max_attempts, crashes, concurrency_key)
   where x.id = o.execution
  returning x.seq, o.*
), back as (
  insert into semel_ready (lane, seq, execution, name, attempt, max_attempts, crashes, concurrency_key)
  select lane, seq, execution, name, attempt, max_attempts, crashes, concurrency_key from lost
  returning lane
)
select pg_notify('semel_work', semel_payload(string_agg(distinct lane::text, ',')))::text from back having count(*) > 0

-- name: entities_among
-- Which of these executions are entities. Rows: id.
select x.id from semel_execution x where x.id = any($1::text[]) and x.kind = 'entity'

-- name: park_lost
-- Entities that cost workers as soon as they are looked at rest for a while. Rows: execution, error, for how long.
update semel_flow f set asleep = true, due_at = (select semel_now()) + o.wait, parked = o.error, parks = parks + 1
  from unnest($1::text[], $2::bytea[], $3::bigint[]) as o(execution, error, wait)
 where f.execution = o.execution and f.execution = any($1)

-- name: lane_by_id
-- What a lane is made of: namespace, queue, priority, task, keyed, suspect.
select namespace, queue, priority, task, keyed, suspect from semel_lane where id = $1

-- name: promote
-- Delayed tasks whose time has come become ready: (limit). Gives the lanes.
with due as (
  delete from semel_later where execution = any(array(
    select execution from semel_later where due_at <= (select semel_now())
     order by due_at limit $1 for update skip locked))
  returning execution, due_at, lane, name, attempt, max_attempts, crashes, concurrency_key
), placed as (
  update semel_execution x set lane = d.lane, seq = default from (select * from due order by due_at) d
   where x.id = d.execution
  returning x.seq, d.*
), ready as (
  insert into semel_ready (lane, seq, execution, name, attempt, max_attempts, crashes, concurrency_key)
  select lane, seq, execution, name, attempt, max_attempts, crashes, concurrency_key from placed
  returning lane
)
select lane::text from ready
union all
select pg_notify('semel_work', semel_payload(string_agg(distinct lane::text, ',')))::text from ready having count(*) > 0
