-- name: seize_flow
-- A living flow: nothing comes for it, and nobody else ends it, until the end of the transaction: (id).
-- Gives where its journal begins, what its run began with, and what becomes of it when its parent ends.
-- SQLite: the transaction holds the only write lock.
select base, snapshot, on_close from semel_flow where execution = ?1

-- name: copy_for_reset
-- What a new execution needs to go on from an old one, and how that stands: (namespace, id).
select x.kind, x.name, x.key, x.lane, x.generation, x.fingerprint, x.input, x.max_attempts, x.concurrency_key,
       x.retention, x.dedup_window, coalesce(x.root_id, x.id), x.parent_id, x.waiters, x.status, x.current, x.stripped
  from semel_execution x where x.namespace = ?1 and x.id = ?2

-- name: forget_waiters
-- Whoever waited for this execution now waits for another: (id).
update semel_execution set waiters = null where id = ?1

-- name: copy_journal
-- The first rows of a journal become those of another execution: (from, to, base, last row). Token -1: nobody's claim.
insert into semel_journal (execution, n, token, body)
select ?2, j.n, -1, j.body from semel_journal j where j.execution = ?1 and j.n > ?3 and j.n <= ?4

-- name: deliver_again
-- What had come for one execution comes for another, as of then. Rows: execution, kind, name, ref, body, error, at.
insert into semel_inbox (execution, kind, name, ref, body, error, at)
select value ->> 0, value ->> 1, value ->> 2, value ->> 3, bytes_at(value ->> 4), bytes_at(value ->> 5), value ->> 6
  from json_each(?1)

-- name: copy_inbox
-- Signals that were not taken in, and answers to these commands, come for another execution: (from, to, commands).
-- Gives the commands that have their answer.
insert into semel_inbox (execution, kind, name, ref, body, error, at)
select ?2, i.kind, i.name, i.ref, i.body, i.error, i.at from semel_inbox i
 where i.execution = ?1 and (i.kind = 'signal' or i.kind = 'done'
   and substr(i.ref, 1, instr(i.ref || ' ', ' ') - 1) in (select value from json_each(?3)))
 order by i.id
returning case when kind = 'done' then ref end

-- name: copy_published
-- Values that one execution published are those of another, until it publishes others: (from, to).
insert into semel_published (execution, name, body)
select ?2, name, body from semel_published where execution = ?1

-- name: adopt_children
-- The living children of one execution become those of another: (from, to).
update semel_flow set parent_id = ?2 where parent_id = ?1

-- name: adopt_child
-- A child that is run again: (id, parent, on_close).
update semel_flow set parent_id = ?2, on_close = ?3 where execution = ?1

-- name: standing
-- How an execution stands: (namespace, id).
select id, kind, status, current, stripped from semel_execution where namespace = ?1 and id = ?2
