-- name: await_record_key
-- Whoever wants a key of the ledger waits for its turn, whether it has a row or not: (namespace, kind, key).
-- SQLite: writers come one at a time as it is.
select 1 where ?1 || ?2 || ?3 is not null

-- name: lock_record_key
-- Whoever holds a key of the ledger holds it until this transaction has ended: (namespace, kind, key).
-- SQLite: writers come one at a time as it is.
select 1 from semel_record_key where key = ?3 and namespace = ?1 and kind = ?2

-- name: record_by_key
-- The execution that holds a key of the ledger, and what time it is: (namespace, kind, key).
select kind, key, execution, name, queue, priority, max_attempts, attempt, generation, previous_id, fingerprint, status,
       created_at, finished_at, retention, dedup_window, stripped, error, semel_now()
  from semel_record_key where key = ?3 and namespace = ?1 and kind = ?2

-- name: record_by_execution
-- The same by its execution: (namespace, execution).
select kind, key, execution, name, queue, priority, max_attempts, attempt, generation, previous_id, fingerprint, status,
       created_at, finished_at, retention, dedup_window, stripped, error, semel_now()
  from semel_record_key where namespace = ?1 and execution = ?2

-- name: record_payloads
-- What an execution of the ledger was given and what it gave: (namespace, execution).
select input, output from semel_record_key where namespace = ?1 and execution = ?2

-- name: reserve_record_key
-- A key gets its row, unless it has one: (namespace, kind, key, execution, name, queue, priority, max_attempts,
-- generation, previous_id, fingerprint, input, retention, dedup_window, until it is looked at).
insert into semel_record_key (namespace, kind, key, execution, name, queue, priority, max_attempts, generation,
  previous_id, fingerprint, input, retention, dedup_window, created_at, due_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, semel_now(), semel_now() + ?15)
on conflict do nothing returning execution

-- name: settle_record_key
-- An execution has ended, and is looked at when its retention is over. Only once, and only while it holds its key:
-- (namespace, execution, status, attempt, finished_at, output, error).
update semel_record_key
   set status = ?3, attempt = ?4, finished_at = ?5, output = ?6, error = ?7, due_at = ?5 + retention
 where namespace = ?1 and execution = ?2 and status = 'running' returning execution

-- name: due_record_keys
-- Keys that the cleaner is to look at, longest due first: (namespace, limit).
select execution, status, finished_at, retention, dedup_window, semel_now()
  from semel_record_key where namespace = ?1 and due_at <= semel_now() order by due_at limit ?2

-- name: put_off_record_keys
-- Look at these later: what has ended when its retention is over, what has not when it is twice as old.
-- Shared: namespace, at least so long; rows: execution.
update semel_record_key
   set due_at = coalesce(finished_at + retention, semel_now() + max(?2, semel_now() - created_at))
 where namespace = ?1 and execution in (select value ->> 0 from json_each(?3))

-- name: strip_record_keys
-- Drop input, result and error; the key and its fingerprint stay until the window is over. Shared: namespace; rows: execution.
update semel_record_key
   set input = null, output = null, error = null, stripped = 1, due_at = finished_at + dedup_window
 where namespace = ?1 and execution in (select value ->> 0 from json_each(?2))

-- name: forget_record_keys
-- The window is over, or another execution takes the key. Shared: namespace; rows: execution.
delete from semel_record_key where namespace = ?1 and execution in (select value ->> 0 from json_each(?2))

-- name: count_record_duplicates
-- Add up duplicates that did not run. Shared: namespace; rows: execution, reason, times, first_at, last_at, due_at.
insert into semel_record_duplicate as d (namespace, execution, reason, times, first_at, last_at, due_at)
select ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 from json_each(?2) where true
on conflict (execution, namespace, reason) do update
  set times = d.times + excluded.times, first_at = min(d.first_at, excluded.first_at),
      last_at = max(d.last_at, excluded.last_at), due_at = max(d.due_at, excluded.due_at)

-- name: record_duplicates
-- What was counted for these executions. Shared: namespace; rows: execution.
select execution, reason, times, first_at, last_at
  from semel_record_duplicate where namespace = ?1 and execution in (select value ->> 0 from json_each(?2))

-- name: forget_record_duplicates
-- Drop counts that nobody has added to for long enough: (namespace, limit).
delete from semel_record_duplicate where (namespace, execution, reason) in (
  select namespace, execution, reason from semel_record_duplicate
   where namespace = ?1 and due_at <= semel_now() order by due_at limit ?2)
returning 1

-- name: begin_record_transaction
-- The row of a function that is about to run, unless it has run: (namespace, execution, step, until it is looked at).
insert into semel_record_transaction (namespace, execution, step, created_at, due_at)
values (?1, ?2, ?3, semel_now(), semel_now() + ?4) on conflict do nothing returning 1

-- name: end_record_transaction
-- What the function gave: (namespace, execution, step, output).
update semel_record_transaction set output = ?4 where namespace = ?1 and execution = ?2 and step = ?3

-- name: undo_record_transaction
-- The function raised, and may be run again: (namespace, execution, step).
delete from semel_record_transaction where namespace = ?1 and execution = ?2 and step = ?3

-- name: record_transaction
-- What a function gave that has run: (namespace, execution, step).
select output from semel_record_transaction where namespace = ?1 and execution = ?2 and step = ?3

-- name: due_record_transactions
-- Functions that ran a while ago. Each is next looked at when it is twice as old: (namespace, limit, at least).
update semel_record_transaction set due_at = semel_now() + max(?3, semel_now() - created_at)
 where rowid in (
   select rowid from semel_record_transaction
    where namespace = ?1 and due_at <= semel_now() order by due_at limit ?2)
returning execution

-- name: forget_record_transactions
-- Nobody will ask for these again: their executions have ended. Shared: namespace; rows: execution.
delete from semel_record_transaction where namespace = ?1 and execution in (select value ->> 0 from json_each(?2))
