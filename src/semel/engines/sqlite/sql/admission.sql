-- name: find_lane
-- The lane for a queue, a priority and its guards: (namespace, queue, priority, task, keyed, suspect).
select id from semel_lane
 where namespace = ?1 and queue = ?2 and priority = ?3 and task = ?4 and keyed = ?5 and suspect = ?6

-- name: make_lane
-- A lane that is not there yet; two that make it at once make one.
insert into semel_lane (namespace, queue, priority, task, keyed, suspect)
values (?1, ?2, ?3, ?4, ?5, ?6) on conflict do nothing

-- name: admit
-- New executions and their work rows; a taken key or id is passed over. Gives the ids that are in.
-- Shared: namespace. SQLite: run once for each row; triggers write the work rows.
insert into semel_execution (namespace, created_at, id, kind, name, key, lane, generation, previous_id,
  fingerprint, input, max_attempts, concurrency_key, retention, dedup_window, run_at)
values (?1, semel_now(), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
  coalesce(?16, semel_now() + ?15))
on conflict do nothing returning id

-- name: priors
-- Who holds these keys, and what time it is. Shared: namespace; rows: kind, key.
select kind, key, id, name, fingerprint, status, generation, finished_at + dedup_window, semel_now()
  from semel_execution where namespace = ?1 and kind = ?2 and key = ?3 and current

-- name: present
-- Which of these executions exist: after a lost reply, whether the admission had been committed.
select id from semel_execution where id = ?1

-- name: release_key
-- Take the key from a finished execution, if it still has it.
update semel_execution set current = 0
 where id = ?1 and current and status in ('completed', 'failed', 'cancelled', 'timed_out') returning id

-- name: count_duplicates
-- Add up duplicates that did not run. Rows: execution, reason, times, first_at, last_at.
insert into semel_duplicate as d (execution, reason, times, first_at, last_at)
values (?1, ?2, ?3, ?4, ?5)
on conflict (execution, reason) do update
  set times = d.times + excluded.times, first_at = min(d.first_at, excluded.first_at),
      last_at = max(d.last_at, excluded.last_at)
