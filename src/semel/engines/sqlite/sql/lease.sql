-- name: register_worker
-- A new lease: (random number, namespace, name, queues, lease in microseconds). Asked for again, it is the same one.
insert into semel_worker (id, namespace, name, queues, started_at, expires_at, lease)
values (?1, ?2, ?3, ?4, semel_now(), semel_now() + ?5, ?5)
on conflict (id) do update set expires_at = excluded.expires_at returning id

-- name: declare_functions
-- The functions that a worker has: (worker, JSON: name to where its code is).
update semel_worker set functions = ?2 where id = ?1

-- name: pulse
-- Renew the lease and look around, in one statement: (worker, lease, lanes, names). No row: the lease is lost.
-- Gives: now, the next lease of another to run out, the lengths of leases that have run out (or end later than they can,
-- since the clock was set back), the next delayed task or sleeping flow, is there work, how lanes and limits look,
-- how often the lease was renewed, and a number that changes when the tables are made anew or all pages are copied over
-- them (SQLite counts both: a restore does so; so does `vacuum`, after which a look too many does no harm).
update semel_worker set expires_at = semel_now() + ?2, beats = beats + 1 where id = ?1
returning semel_now(),
  (select min(o.expires_at) from semel_worker o where o.id <> ?1 and o.expires_at >= semel_now()),
  (select group_concat(distinct coalesce(o.lease, 30000000)) from semel_worker o where o.id <> ?1
      and (o.expires_at < semel_now() or o.expires_at > semel_now() + 2 * o.lease)),
  (select min(due_at) from (
     select min(d.due_at) as due_at from semel_later d
     union all select min(f.due_at) from semel_flow f where f.due_at is not null)),
  exists (select 1 from semel_ready r where r.lane in (select value from json_each(?3)) and r.owner is null
            and r.name in (select value from json_each(?4))),
  (select count(*) || ' ' || coalesce(sum(l.id), 0) from semel_lane l)
    || coalesce((select group_concat(json_array(q.namespace, q.name, q.rate_limit,
     q.concurrency, q.retention)) from semel_queue q), ''), beats,
  (select v.schema_version from pragma_schema_version v)

-- name: note_progress
-- What running tasks say of themselves. Shared: worker; rows: lane, seq, token, execution, progress.
update semel_ready set progress = p.value ->> 4
  from json_each(?2) p where semel_ready.seq = p.value ->> 1 and semel_ready.owner = ?1
   and semel_ready.token = p.value ->> 2 and semel_ready.execution = p.value ->> 3

-- name: cancels
-- Which of this worker's tasks someone wants cancelled. Shared: worker; rows: lane, seq, token, execution.
select r.execution from json_each(?2) o cross join semel_ready r
    on r.seq = o.value ->> 1 and r.owner = ?1 and r.cancel and r.token = o.value ->> 2 and r.execution = o.value ->> 3

-- name: bury_workers
-- Workers whose lease had run out at a certain time lose it: (time or null for now, lengths of leases or null for all).
-- One whose lease ends later than it can has not beaten since the clock was set back.
delete from semel_worker
 where (expires_at < coalesce(?1, semel_now()) or expires_at > semel_now() + 2 * lease)
   and (?2 is null or coalesce(lease, 30000000) in (select value from json_each(?2)))
returning id, name

-- name: retire_worker
-- A worker that stops gives its lease back.
delete from semel_worker where id = ?1 returning id

-- name: take_back
-- The tasks of these workers, out of their hands: (workers).
delete from semel_ready where owner in (select value from json_each(?1))
returning execution, lane, name, attempt, max_attempts, crashes, concurrency_key, cancel, owner

-- name: take_these
-- These claims, out of the hands of a worker that has lost track of them. Shared: worker; rows: lane, seq, token, execution.
delete from semel_ready where seq in (
  select r.seq from json_each(?2) d cross join semel_ready r
    on r.seq = d.value ->> 1 and r.owner = ?1 and r.token = d.value ->> 2 and r.execution = d.value ->> 3)
returning execution, lane, name, attempt, max_attempts, crashes, concurrency_key, cancel, owner

-- name: orphans
-- Owners that have no lease; there are none unless someone edited the tables by hand.
select distinct r.owner from semel_ready r
 where r.owner is not null and not exists (select 1 from semel_worker w where w.id = r.owner)

-- name: put_back
-- Lost tasks wait again, at the end of their lane. Rows: lane, execution, name, attempt, max_attempts,
-- crashes, concurrency_key.
insert into semel_ready (lane, execution, name, attempt, max_attempts, crashes, concurrency_key)
select value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6 from json_each(?1)

-- name: entities_among
-- Which of these executions are entities. Rows: id.
select x.id from json_each(?1) o cross join semel_execution x on x.id = o.value ->> 0 where x.kind = 'entity'

-- name: park_lost
-- Entities that cost workers as soon as they are looked at rest for a while. Rows: execution, error, for how long.
update semel_flow set asleep = 1, due_at = semel_now() + o.wait, parked = o.error, parks = parks + 1
  from (select value ->> 0 as execution, bytes_at(value ->> 1) as error, value ->> 2 as wait from json_each(?1)) o
 where semel_flow.execution = o.execution

-- name: lane_by_id
-- What a lane is made of: namespace, queue, priority, task, keyed, suspect.
select namespace, queue, priority, task, keyed, suspect from semel_lane where id = ?1

-- name: promote
-- Delayed tasks whose time has come become ready: (limit). Gives the lanes.
insert into semel_ready (lane, execution, name, attempt, max_attempts, crashes, concurrency_key)
select lane, execution, name, attempt, max_attempts, crashes, concurrency_key from semel_later
 where due_at <= semel_now() order by due_at, rowid limit ?1 returning cast(lane as text);
delete from semel_later where rowid in (
  select rowid from semel_later where due_at <= semel_now() order by due_at, rowid limit ?1)
