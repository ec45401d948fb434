-- name: withdraw
-- Take back an execution that nobody runs yet: (id). Gives its attempts so far. Not a flow that has begun: it may
-- have done so since somebody looked, and has to clean up.
delete from semel_ready
 where seq = (select x.seq from semel_execution x where x.id = ?1) and owner is null
   and not exists (select 1 from semel_journal where execution = ?1)
   and not exists (select 1 from semel_flow where execution = ?1 and base > 0) returning attempt;
delete from semel_later where execution = ?1
   and not exists (select 1 from semel_journal where execution = ?1)
   and not exists (select 1 from semel_flow where execution = ?1 and base > 0) returning attempt

-- name: withdraw_unbegun
-- Take back an execution that nobody has ever run: (id). Gives its id.
delete from semel_ready
 where seq = (select x.seq from semel_execution x where x.id = ?1) and owner is null and attempt = 0
   and not exists (select 1 from semel_journal where execution = ?1)
   and not exists (select 1 from semel_flow where execution = ?1 and base > 0) returning execution

-- name: ask_to_stop
-- Ask the worker that runs an execution to cancel it: (id).
update semel_ready set cancel = 1
 where seq = (select x.seq from semel_execution x where x.id = ?1) and owner is not null returning execution

-- name: copy_for_redrive
-- What a new execution needs to repeat an old one: (namespace, id). Its lane is the ordinary one, even if the old one
-- ended as a suspect.
select x.kind, x.name, x.key, n.id, x.generation, x.fingerprint, x.input, x.max_attempts, x.concurrency_key,
       x.retention, x.dedup_window, x.status, x.current, x.stripped, coalesce(x.root_id, x.id)
  from semel_execution x join semel_lane l on l.id = x.lane
  join semel_lane n on n.namespace = l.namespace and n.queue = l.queue and n.priority = l.priority and n.task = l.task
    and n.keyed = l.keyed and not n.suspect
 where x.namespace = ?1 and x.id = ?2
