-- name: register_worker
-- A new lease: (namespace, name, queues, lease in microseconds).
insert into semel_worker (namespace, name, queues, started_at, expires_at)
values (?1, ?2, ?3, semel_now(), semel_now() + ?4) returning id

-- name: pulse
-- Renew the lease and look around, in one statement: (worker, lease, lanes, names). No row: the lease is lost.
-- Gives: now, the next lease of another to run out, the next delayed task or sleeping flow, the next slip, is there work,
-- how lanes and limits look.
update semel_worker set expires_at = semel_now() + ?2 where id = ?1
returning semel_now(),
  (select min(o.expires_at) from semel_worker o where o.id <> ?1),
  (select min(due_at) from (
     select min(d.due_at) as due_at from semel_later d
     union all select min(f.due_at) from semel_flow f where f.due_at is not null)),
  (select s.due_at from semel_slip s order by s.due_at limit 1),
  exists (select 1 from semel_ready r where r.lane in (select value from json_each(?3)) and r.owner is null
            and r.name in (select value from json_each(?4))),
  (select count(*) from semel_lane) || coalesce((select group_concat(concat_ws(' ', q.namespace, q.name, q.rate_limit,
     q.concurrency, q.retention)) from semel_queue q), '')

-- name: note_progress
-- What running tasks say of themselves. Shared: worker; rows: lane, seq, progress.
update semel_ready set progress = p.value ->> 2
  from json_each(?2) p where semel_ready.seq = p.value ->> 1 and semel_ready.owner = ?1

-- name: cancels
-- Which of this worker's tasks someone wants cancelled. Shared: worker; rows: lane, seq.
select r.execution from json_each(?2) o cross join semel_ready r
    on r.seq = o.value ->> 1 and r.owner = ?1 and r.cancel

-- name: bury_workers
-- Workers whose lease has run out lose it.
delete from semel_worker where expires_at < semel_now() returning id, name

-- name: retire_worker
-- A worker that stops gives its lease back.
delete from semel_worker where id = ?1 returning id

-- name: take_back
-- The tasks of these workers, out of their hands: (workers).
delete from semel_ready where owner in (select value from json_each(?1))
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
  from (select value ->> 0 as execution, unhex(value ->> 1) as error, value ->> 2 as wait from json_each(?1)) o
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
