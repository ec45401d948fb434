-- name: await_record_key
-- Whoever wants a key of the ledger waits for its turn, whether it has a row or not: (namespace, kind, key).
select 1 from (select pg_advisory_xact_lock(hashtextextended(concat_ws(' ', $1::text, $2::text, $3::text), 0))) turn

-- name: lock_record_key
-- Whoever holds a key of the ledger holds it until this transaction has ended: (namespace, kind, key).
select 1 from semel_record_key where key = $3 and namespace = $1 and kind = $2 for update

-- name: record_by_key
-- The execution that holds a key of the ledger, and what time it is: (namespace, kind, key).
select kind, key, execution, name, queue, priority, max_attempts, attempt, generation, previous_id, fingerprint, status,
       created_at, finished_at, retention, dedup_window, stripped, error, semel_now()
  from semel_record_key where key = $3 and namespace = $1 and kind = $2

-- name: record_by_execution
-- The same by its execution: (namespace, execution).
select kind, key, execution, name, queue, priority, max_attempts, attempt, generation, previous_id, fingerprint, status,
       created_at, finished_at, retention, dedup_window, stripped, error, semel_now()
  from semel_record_key where namespace = $1 and execution = $2

-- name: record_payloads
-- What an execution of the ledger was given and what it gave: (namespace, execution).
select input, output from semel_record_key where namespace = $1 and execution = $2

-- name: reserve_record_key
-- A key gets its row, unless it has one: (namespace, kind, key, execution, name, queue, priority, max_attempts,
-- generation, previous_id, fingerprint, input, retention, dedup_window, until it is looked at).
insert into semel_record_key (namespace, kind, key, execution, name, queue, priority, max_attempts, generation,
  previous_id, fingerprint, input, retention, dedup_window, created_at, due_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, semel_now(), semel_now() + $15::bigint)
on conflict do nothing returning execution

-- name: settle_record_key
-- An execution has ended, and is looked at when its retention is over. Only once, and only while it holds its key:
-- (namespace, execution, status, attempt, finished_at, output, error).
update semel_record_key
   set status = $3, attempt = $4, finished_at = $5::bigint, output = $6, error = $7, due_at = $5::bigint + retention
 where namespace = $1 and execution = $2 and status = 'running' returning execution

-- name: due_record_keys
-- Keys that the cleaner is to look at, longest due first: (namespace, limit).
-- PostgreSQL: what another cleaner looks at is left to it.
select execution, status, finished_at, retention, dedup_window, (select semel_now())
  from semel_record_key
 where namespace = $1 and due_at <= (select semel_now()) order by due_at limit $2 for update skip locked

-- name: put_off_record_keys
-- Look at these later: what has ended when its retention is over, what has not when it is twice as old.
-- Shared: namespace, at least so long; rows: execution.
-- PostgreSQL: an array of ids is looked up one by one, whatever the statistics say.
update semel_record_key
   set due_at = coalesce(finished_at + retention, semel_now() + greatest($2::bigint, semel_now() - created_at))
 where namespace = $1 and execution = any($3::text[])

-- name: strip_record_keys
-- Drop input, result and error; the key and its fingerprint stay until the window is over. Shared: namespace; rows: execution.
update semel_record_key
   set input = null, output = null, error = null, stripped = true, due_at = finished_at + dedup_window
 where namespace = $1 and execution = any($2::text[])

-- name: forget_record_keys
-- The window is over, or another execution takes the key. Shared: namespace; rows: execution.
delete from semel_record_key where namespace = $1 and execution = any($2::text[])

-- name: count_record_duplicates
-- Add up duplicates that did not run. Shared: namespace; rows: execution, reason, times, first_at, last_at, due_at.
insert into semel_record_duplicate as d (namespace, execution, reason, times, first_at, last_at, due_at)
select $1, o.* from unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) as o
on conflict (execution, namespace, reason) do update
  set times = d.times + excluded.times, first_at = least(d.first_at, excluded.first_at),
      last_at = greatest(d.last_at, excluded.last_at), due_at = greatest(d.due_at, excluded.due_at)

-- name: record_duplicates
-- What was counted for these executions. Shared: namespace; rows: execution.
select execution, reason, times, first_at, last_at
  from semel_record_duplicate where namespace = $1 and execution = any($2::text[])

-- name: forget_record_duplicates
-- Drop counts that nobody has added to for long enough: (namespace, limit).
-- PostgreSQL: what another process adds to at this moment is left for the next time.
delete from semel_record_duplicate where ctid = any(array(
  select ctid from semel_record_duplicate
   where namespace = $1 and due_at <= (select semel_now()) order by due_at limit $2 for update skip locked))
returning 1

-- name: begin_record_transaction
-- The row of a function that is about to run, unless it has run: (namespace, execution, step, until it is looked at).
-- PostgreSQL: one that is running at this moment is waited for.
insert into semel_record_transaction (namespace, execution, step, created_at, due_at)
values ($1, $2, $3, semel_now(), semel_now() + $4::bigint) on conflict do nothing returning 1

-- name: end_record_transaction
-- What the function gave: (namespace, execution, step, output).
update semel_record_transaction set output = $4 where namespace = $1 and execution = $2 and step = $3

-- name: undo_record_transaction
-- The function raised, and may be run again: (namespace, execution, step).
delete from semel_record_transaction where namespace = $1 and execution = $2 and step = $3

-- name: record_transaction
-- What a function gave that has run: (namespace, execution, step).
select output from semel_record_transaction where namespace = $1 and execution = $2 and step = $3

-- name: due_record_transactions
-- Functions that ran a while ago. Each is next looked at when it is twice as old: (namespace, limit, at least).
update semel_record_transaction set due_at = semel_now() + greatest($3::bigint, semel_now() - created_at)
 where ctid = any(array(
   select ctid from semel_record_transaction
    where namespace = $1 and due_at <= (select semel_now()) order by due_at limit $2 for update skip locked))
returning execution

-- name: forget_record_transactions
-- Nobody will ask for these again: their executions have ended. Shared: namespace; rows: execution.
delete from semel_record_transaction where namespace = $1 and execution = any($2::text[])
