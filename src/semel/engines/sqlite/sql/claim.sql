-- name: lanes
-- The lanes of these queues, in the order in which they are served: (namespace, queues or null for all).
-- SQLite: lists are JSON text.
select id, queue, priority, task, keyed, suspect from semel_lane
 where namespace = ?1 and (?2 is null or queue in (select value from json_each(?2))) order by priority desc, suspect, id

-- name: claim
-- Take up to ?5 tasks in lane order for worker ?1: lanes, the seq after which each is searched, names. ?6 is a random
-- number: with its seq added it is the token of each claim.
-- SQLite: the transaction holds the only write lock, so reading first and writing then takes the same rows;
-- a cross join is never reordered, so that lanes come in their order, and the index gives seqs in theirs.
select r.lane, r.seq, r.execution, r.attempt + 1, r.max_attempts, r.cancel, x.name, x.key, x.generation, x.input,
       x.kind, coalesce(x.root_id, x.id), x.parent_id, ?6 + r.seq
  from semel_ready r join semel_execution x on x.id = r.execution
 where r.seq in (
   select c.seq from json_each(?2) l cross join semel_ready c indexed by semel_ready_lane
    where c.lane = l.value and c.seq > json_extract(?3, '$[' || l.key || ']') and c.owner is null
      and c.name in (select value from json_each(?4))
    limit ?5)
   and exists (select 1 from semel_worker where id = ?1);
update semel_ready set owner = ?1, claimed_at = semel_now(), attempt = attempt + 1, token = ?6 + seq
 where seq in (
   select c.seq from json_each(?2) l cross join semel_ready c indexed by semel_ready_lane
    where c.lane = l.value and c.seq > json_extract(?3, '$[' || l.key || ']') and c.owner is null
      and c.name in (select value from json_each(?4))
    limit ?5)
   and exists (select 1 from semel_worker where id = ?1)

-- name: keyed_heads
-- The first waiting task of each concurrency key in lane ?2 that nobody works on, keys after ?3 first,
-- at most ?4: (namespace, lane, after, limit, names).
with recursive heads (concurrency_key, visited) as (
  select min(r.concurrency_key), 1 from semel_ready r where r.lane = ?2 and r.concurrency_key > ?3
  union all
  select (select min(r.concurrency_key) from semel_ready r where r.lane = ?2 and r.concurrency_key > h.concurrency_key),
         h.visited + 1
    from heads h where h.concurrency_key is not null and h.visited < 2000
), first as (
  select h.concurrency_key, (select min(r.seq) from semel_ready r
    where r.lane = ?2 and r.concurrency_key = h.concurrency_key) as seq
    from heads h where h.concurrency_key is not null
)
select f.seq, f.concurrency_key from first f join semel_ready r on r.seq = f.seq
 where r.owner is null and r.name in (select value from json_each(?5))
   and not exists (select 1 from semel_permit p where p.namespace = ?1 and p.scope = 'key:' || f.concurrency_key)
 limit ?4

-- name: claim_these
-- Take these tasks of one lane, if they are still free: worker, lane, seqs, random number.
select r.lane, r.seq, r.execution, r.attempt + 1, r.max_attempts, r.cancel, x.name, x.key, x.generation, x.input,
       x.kind, coalesce(x.root_id, x.id), x.parent_id, ?4 + r.seq
  from semel_ready r join semel_execution x on x.id = r.execution
 where r.lane = ?2 and r.seq in (select value from json_each(?3)) and r.owner is null
   and exists (select 1 from semel_worker w where w.id = ?1);
update semel_ready set owner = ?1, claimed_at = semel_now(), attempt = attempt + 1, token = ?4 + seq
 where lane = ?2 and seq in (select value from json_each(?3)) and owner is null
   and exists (select 1 from semel_worker w where w.id = ?1)

-- name: release
-- Give tasks back unrun, in their place, the attempt not counted. Shared: worker; rows: lane, seq, token, execution.
update semel_ready set owner = null, claimed_at = null, attempt = attempt - 1, progress = null
  from json_each(?2) d
 where semel_ready.seq = d.value ->> 1 and semel_ready.owner = ?1 and semel_ready.token = d.value ->> 2
   and semel_ready.execution = d.value ->> 3
returning lane

-- name: owned
-- All that this worker owns: (worker). Looks through all ready work; asked for when something is amiss.
select lane, seq, token, execution, name from semel_ready where owner = ?1

-- name: confirm
-- Write something that waits for the disk, and with it for all that was written before: (worker).
update semel_worker set queues = queues where id = ?1
