-- name: withdraw
-- Take back an execution that nobody runs yet: (id). Gives its attempts so far.
with ready as (
  delete from semel_ready where execution = $1 and owner is null returning attempt
), later as (
  delete from semel_later where execution = $1 returning attempt
)
select attempt from ready union all select attempt from later

-- name: ask_to_stop
-- Ask the worker that runs an execution to cancel it: (id).
update semel_ready set cancel = true where execution = $1 and owner is not null
returning pg_notify('semel_cancel', execution)::text

-- name: copy_for_redrive
-- What a new execution needs to repeat an old one: (namespace, id).
select x.kind, x.name, x.key, x.lane, x.generation, x.fingerprint, x.input, x.max_attempts, x.concurrency_key,
       x.retention, x.dedup_window, x.status, x.current, x.stripped, coalesce(x.root_id, x.id)
  from semel_execution x where x.namespace = $1 and x.id = $2
