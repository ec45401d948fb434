-- name: find_lane
-- The lane for a queue, a priority and its guards: (namespace, queue, priority, task, keyed, suspect).
select id from semel_lane
 where namespace = $1 and queue = $2 and priority = $3 and task = $4 and keyed = $5 and suspect = $6

-- name: make_lane
-- A lane that is not there yet: (random number, namespace, queue, …). Two that make it at once make one; nothing is made
-- if another lane has the number.
insert into semel_lane (id, namespace, queue, priority, task, keyed, suspect) overriding system value
values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing

-- name: take_write_lock
-- Become the one writer before anything is read. PostgreSQL: there are many, and nothing to take.
select

-- name: admit
-- New executions and their work rows, in one statement; a taken key or id is passed over, and so is what is for a lane
-- that the database does not know (any more): callers remember the numbers of lanes. Gives how many are in
-- and their ids, as one text; wakes workers at commit. Shared: namespace; rows: ExecutionRow.
with fresh as (
  insert into semel_execution (namespace, created_at, id, kind, name, key, lane, generation, previous_id,
    fingerprint, input, max_attempts, concurrency_key, retention, dedup_window, run_at, root_id, parent_id, waiters)
  select $1, (select semel_now()), o.id, o.kind, o.name, o.key, o.lane, o.generation, o.previous_id,
    o.fingerprint, o.input, o.max_attempts, o.concurrency_key, o.retention, o.dedup_window,
    coalesce(o.run_at, (select semel_now()) + o.delay), o.root_id, o.parent_id, o.waiters
  from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::int[], $8::text[], $9::bytea[],
    $10::bytea[], $11::int[], $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::text[],
    $18::text[], $19::text[])
    as o(id, kind, name, key, lane, generation, previous_id, fingerprint, input, max_attempts,
         concurrency_key, retention, dedup_window, delay, run_at, root_id, parent_id, waiters)
  where exists (select from semel_lane l where l.id = o.lane offset 0)
  on conflict do nothing
  returning id, lane, seq, name, max_attempts, concurrency_key, run_at
), ready as (
  insert into semel_ready (lane, seq, execution, name, max_attempts, concurrency_key)
  select lane, seq, id, name, max_attempts, concurrency_key from fresh where run_at is null
), later as (
  insert into semel_later (execution, due_at, lane, name, max_attempts, concurrency_key)
  select id, run_at, lane, name, max_attempts, concurrency_key from fresh where run_at is not null
)
select count(*), string_agg(id, ',') from fresh
union all
select null, pg_notify('semel_work', semel_payload(string_agg(distinct lane::text, ',')))::text from fresh
 where run_at is null having count(*) > 0
union all
select null, pg_notify('semel_later', min(run_at)::text)::text from fresh
 where run_at is not null having count(*) > 0

-- name: admit_alike
-- Insert rows that differ only in id, key, fingerprint and input, which is what a flush mostly holds. Only a taken key
-- is passed over, not a taken id: for ids that are new. Gives ids only where not all are in.
-- Shared: namespace, kind, name, lane, max_attempts, retention, dedup_window.
with fresh as (
  insert into semel_execution (namespace, created_at, kind, name, lane, max_attempts, retention, dedup_window,
    id, key, fingerprint, input)
  select $1, (select semel_now()), $2, $3, $4, $5, $6, $7, o.id, o.key, o.fingerprint, o.input
  from unnest($8::text[], $9::text[], $10::bytea[], $11::bytea[]) as o(id, key, fingerprint, input)
  where exists (select from semel_lane where id = $4)
  on conflict (key, namespace, kind) where key is not null and current do nothing
  returning id, seq
), ready as (
  insert into semel_ready (lane, seq, execution, name, max_attempts) select $4, seq, id, $3, $5 from fresh
)
select n.count, case when n.count < cardinality($8) then (select string_agg(id, ',') from fresh) end,
       case when n.count > 0 then pg_notify('semel_work', ($4::int)::text)::text end
  from (select count(*) from fresh) n

-- name: admit_new
-- Insert such rows with keys that are probably new: a taken one fails the statement. PostgreSQL: without `on conflict` it need not
-- look before it inserts, nor confirm each row.
with fresh as (
  insert into semel_execution (namespace, created_at, kind, name, lane, max_attempts, retention, dedup_window,
    id, key, fingerprint, input)
  select $1, (select semel_now()), $2, $3, $4, $5, $6, $7, o.id, o.key, o.fingerprint, o.input
  from unnest($8::text[], $9::text[], $10::bytea[], $11::bytea[]) as o(id, key, fingerprint, input)
  where exists (select from semel_lane where id = $4)
  returning id, seq
), ready as (
  insert into semel_ready (lane, seq, execution, name, max_attempts) select $4, seq, id, $3, $5 from fresh
)
select n.count, null::text, case when n.count > 0 then pg_notify('semel_work', ($4::int)::text)::text end
  from (select count(*) from fresh) n

-- name: priors
-- Who holds these keys, whether somebody did before, and what time it is. Shared: namespace; rows: kind, key.
-- PostgreSQL: one look-up for each key, whatever the statistics say.
select x.kind, x.key, x.id, x.name, x.fingerprint, x.status, x.generation,
       x.finished_at + x.dedup_window, x.parent_id, x.previous_id is not null, (select semel_now())
  from unnest($2::text[], $3::text[]) as k(kind, key)
 cross join lateral (
   select * from semel_execution p
    where p.key = k.key and p.namespace = $1 and p.kind = k.kind and p.current limit 1) x

-- name: present
-- Which of these executions exist: after a lost reply, whether the admission had been committed.
select x.id from unnest($1::text[]) as o(id) join semel_execution x on x.id = o.id

-- name: release_key
-- Take the key from a finished execution, if it still has it.
update semel_execution set current = false
 where id = $1 and current and status in ('completed', 'failed', 'cancelled', 'timed_out') returning id

-- name: count_duplicates
-- Add up duplicates that did not run, of executions that are still known. Rows: execution, reason, times,
-- first_at, last_at.
insert into semel_duplicate as d (execution, reason, times, first_at, last_at)
select o.execution, o.reason, o.times, o.first_at, o.last_at
  from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
    as o(execution, reason, times, first_at, last_at)
  join semel_execution x on x.id = o.execution
on conflict (execution, reason) do update
  set times = d.times + excluded.times, first_at = least(d.first_at, excluded.first_at),
      last_at = greatest(d.last_at, excluded.last_at)
