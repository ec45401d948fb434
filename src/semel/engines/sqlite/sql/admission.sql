-- name: find_lane
-- The lane for a queue, a priority and its guards: (namespace, queue, priority, task, keyed, suspect).
select id from semel_lane
 where namespace = ?1 and queue = ?2 and priority = ?3 and task = ?4 and keyed = ?5 and suspect = ?6

-- name: make_lane
-- A lane that is not there yet: (random number, namespace, queue, …). Two that make it at once make one; nothing is made
-- if another lane has the number.
insert into semel_lane (id, namespace, queue, priority, task, keyed, suspect)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7) on conflict do nothing

-- name: take_write_lock
-- Become the one writer before anything is read. SQLite: a statement that could write takes the lock, or waits for it.
delete from semel_lane where false

-- name: admit
-- New executions and their work rows; a taken key or id is passed over, and so is what is for a lane that the database
-- does not know (any more): callers remember the numbers of lanes. Gives how many are in and, where that is
-- not all, the ids of those that are. Shared: namespace; rows: ExecutionRow. SQLite: rows come as JSON, see rows.py for
-- `bytes_at`; triggers write the work rows, with the seqs that follow the last one.
insert into semel_execution (namespace, created_at, id, kind, name, key, lane, generation, previous_id,
  fingerprint, input, max_attempts, concurrency_key, retention, dedup_window, run_at, root_id, parent_id, waiters, seq)
select ?1, semel_now(), value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
  value ->> 6, bytes_at(value ->> 7), bytes_at(value ->> 8), value ->> 9, value ->> 10, value ->> 11, value ->> 12,
  coalesce(value ->> 14, semel_now() + (value ->> 13)), value ->> 15, value ->> 16, value ->> 17,
  case when value ->> 14 is null and value ->> 13 is null then s.seq + 1 + key end
  from sqlite_sequence s cross join json_each(?2)
 where s.name = 'semel_ready' and exists (select 1 from semel_lane l where l.id = value ->> 4)
on conflict do nothing;
select changes(), case when changes() < json_array_length(?2) then (
  select group_concat(x.id) from json_each(?2) o cross join semel_execution x on x.id = o.value ->> 0) end

-- name: admit_alike, admit_new
-- Insert rows that differ only in id, key, fingerprint and input, which is what a flush mostly holds. Only a taken key
-- is passed over, not a taken id: for ids that are new. Gives ids only where not all are in.
-- Shared: namespace, kind, name, lane, max_attempts, retention, dedup_window.
insert into semel_execution (namespace, created_at, kind, name, lane, max_attempts, retention, dedup_window,
  id, key, fingerprint, input, seq)
select ?1, semel_now(), ?2, ?3, ?4, ?5, ?6, ?7, value ->> 0, value ->> 1, bytes_at(value ->> 2), bytes_at(value ->> 3),
  s.seq + 1 + key
  from sqlite_sequence s cross join json_each(?8)
 where s.name = 'semel_ready' and exists (select 1 from semel_lane where id = ?4)
on conflict (key, namespace, kind) where key is not null and current do nothing;
select changes(), case when changes() < json_array_length(?8) then (
  select group_concat(x.id) from json_each(?8) o cross join semel_execution x on x.id = o.value ->> 0) end

-- name: priors
-- Who holds these keys, whether somebody did before, and what time it is. Shared: namespace; rows: kind, key.
select x.kind, x.key, x.id, x.name, x.fingerprint, x.status, x.generation,
       x.finished_at + x.dedup_window, x.parent_id, x.previous_id is not null, semel_now()
  from json_each(?2) k cross join semel_execution x
    on x.namespace = ?1 and x.kind = k.value ->> 0 and x.key = k.value ->> 1 and x.current

-- name: present
-- Which of these executions exist: after a lost reply, whether the admission had been committed.
select x.id from json_each(?1) o cross join semel_execution x on x.id = o.value ->> 0

-- name: release_key
-- Take the key from a finished execution, if it still has it.
update semel_execution set current = 0
 where id = ?1 and current and status in ('completed', 'failed', 'cancelled', 'timed_out') returning id

-- name: count_duplicates
-- Add up duplicates that did not run, of executions that are still known. Rows: execution, reason, times,
-- first_at, last_at.
insert into semel_duplicate as d (execution, reason, times, first_at, last_at)
select x.id, o.value ->> 1, o.value ->> 2, o.value ->> 3, o.value ->> 4
  from json_each(?1) o cross join semel_execution x on x.id = o.value ->> 0
 where true
on conflict (execution, reason) do update
  set times = d.times + excluded.times, first_at = min(d.first_at, excluded.first_at),
      last_at = max(d.last_at, excluded.last_at)
