-- name: lanes
-- The lanes of these queues, in the order in which they are served: (namespace, queues or null for all).
select id, queue, priority, task, keyed, suspect from semel_lane
 where namespace = $1 and ($2::text[] is null or queue = any($2)) order by priority desc, suspect, id

-- name: claim
-- Take up to $5 tasks in lane order for worker $1: lanes, the seq after which each is searched, names. $6 is a random
-- number: with its seq added it is the token of each claim.
-- PostgreSQL: rows that others are taking are skipped, and the worker's own row is held, so that nobody
-- can declare it dead in between. Rows are named by arrays and not by a join, here and wherever work is looked up: of
-- a table that was empty when it was vacuumed the planner expects one row, and would join by walking through it.
with me as materialized (
  select id from semel_worker where id = $1 for key share
), picked as (
  select c.lane, c.seq from me, unnest($2::int[], $3::bigint[]) as l(lane, low)
   cross join lateral (
     select r.lane, r.seq from semel_ready r
      where r.lane = l.lane and r.seq > l.low and r.owner is null and r.name = any($4)
      order by r.seq limit $5 for update skip locked) c
   limit $5
), taken as (
  update semel_ready r set owner = $1, claimed_at = (select semel_now()), attempt = r.attempt + 1, token = $6 + r.seq
   where r.lane = any(array(select distinct lane from picked)) and r.seq = any(array(select seq from picked))
  returning r.lane, r.seq, r.execution, r.attempt, r.max_attempts, r.cancel, r.token
)
select t.lane, t.seq, t.execution, t.attempt, t.max_attempts, t.cancel, x.name, x.key, x.generation, x.input,
       x.kind, coalesce(x.root_id, x.id), x.parent_id, t.token
  from taken t cross join lateral (select * from semel_execution p where p.id = t.execution limit 1) x

-- name: keyed_heads
-- The first waiting task of each concurrency key in lane $2 that nobody works on, keys after $3 first,
-- at most $4: (namespace, lane, after, limit, names).
with recursive heads as (
  (select r.concurrency_key, r.seq, r.owner, r.name, 1 as visited from semel_ready r
    where r.lane = $2 and r.concurrency_key > $3
    order by r.concurrency_key, r.seq limit 1)
  union all
  (select n.concurrency_key, n.seq, n.owner, n.name, h.visited + 1 from heads h cross join lateral (
     select r.concurrency_key, r.seq, r.owner, r.name from semel_ready r
      where r.lane = $2 and r.concurrency_key > h.concurrency_key
      order by r.concurrency_key, r.seq limit 1) n
    where h.visited < 2000)
)
select h.seq, h.concurrency_key from heads h
 where h.owner is null and h.name = any($5)
   and not exists (select from semel_permit p where p.namespace = $1 and p.scope = 'key:' || h.concurrency_key)
 limit $4

-- name: claim_these
-- Take these tasks of one lane, if they are still free: worker, lane, seqs, random number. PostgreSQL: holds the worker's row, as
-- `claim` does.
with me as materialized (
  select id from semel_worker where id = $1 for key share
), taken as (
  update semel_ready r set owner = $1, claimed_at = (select semel_now()), attempt = r.attempt + 1, token = $4 + r.seq
    from me where r.lane = $2 and r.seq = any($3::bigint[]) and r.owner is null
  returning r.lane, r.seq, r.execution, r.attempt, r.max_attempts, r.cancel, r.token
)
select t.lane, t.seq, t.execution, t.attempt, t.max_attempts, t.cancel, x.name, x.key, x.generation, x.input,
       x.kind, coalesce(x.root_id, x.id), x.parent_id, t.token
  from taken t cross join lateral (select * from semel_execution p where p.id = t.execution limit 1) x

-- name: release
-- Give tasks back unrun, in their place, the attempt not counted. Shared: worker; rows: lane, seq, token, execution.
update semel_ready r set owner = null, claimed_at = null, attempt = r.attempt - 1, progress = null
 where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1
   and r.execution = ($5::text[])[array_position($4::bigint[], r.token)]
returning r.lane, pg_notify('semel_work', r.lane::text)::text

-- name: owned
-- All that this worker owns: (worker). Looks through all ready work; asked for when something is amiss.
select lane, seq, token, execution, name from semel_ready where owner = $1

-- name: confirm
-- Write something that waits for the disk, and with it for all that was written before: (worker).
update semel_worker set queues = queues where id = $1
