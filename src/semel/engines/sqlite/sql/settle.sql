-- name: settle
-- End claimed tasks: the claim must still be this worker's. Gives the seqs that ended; what is missing
-- was taken away. Shared: worker; rows: lane, seq, status, output, error. SQLite: a trigger ends the work row.
with e as materialized (
  select r.execution, r.seq, r.attempt, r.claimed_at, d.value ->> 2 as status,
         unhex(d.value ->> 3) as output, unhex(d.value ->> 4) as error
    from json_each(?2) d cross join semel_ready r
      on r.seq = d.value ->> 1 and r.lane = d.value ->> 0 and r.owner = ?1
)
update semel_execution
   set status = e.status, output = e.output, error = e.error, attempt = e.attempt,
       started_at = e.claimed_at, finished_at = semel_now(), token = e.seq
  from e where semel_execution.id = e.execution
returning cast(token as text)

-- name: retry
-- Put claimed tasks off to a later attempt, except those that someone wants cancelled.
-- Shared: worker; rows: lane, seq, error, delay in microseconds.
insert into semel_later (execution, due_at, lane, name, attempt, max_attempts, crashes, concurrency_key)
select r.execution, semel_now() + (d.value ->> 3), r.lane, r.name, r.attempt, r.max_attempts, r.crashes,
       r.concurrency_key
  from json_each(?2) d cross join semel_ready r
    on r.seq = d.value ->> 1 and r.lane = d.value ->> 0 and r.owner = ?1 and r.cancel = 0;
with e as materialized (
  select r.execution, r.seq, r.attempt, r.claimed_at, unhex(d.value ->> 2) as error
    from json_each(?2) d cross join semel_ready r
      on r.seq = d.value ->> 1 and r.lane = d.value ->> 0 and r.owner = ?1 and r.cancel = 0
)
update semel_execution
   set error = e.error, attempt = e.attempt, started_at = e.claimed_at, token = e.seq
  from e where semel_execution.id = e.execution
returning cast(token as text);
delete from semel_ready where owner = ?1 and cancel = 0 and seq in (select value ->> 1 from json_each(?2))

-- name: settled
-- Which of these claims wrote last: after a lost reply, whether the settlement had been committed. Rows: execution, seq.
select x.id, x.token from json_each(?1) e cross join semel_execution x
    on x.id = e.value ->> 0 and x.token = e.value ->> 1

-- name: end
-- End executions that nobody runs: cancelled while waiting, or lost with their worker too often.
-- Rows: execution, status, error, attempt.
update semel_execution
   set status = e.status, error = e.error, attempt = e.attempt, finished_at = semel_now()
  from (select value ->> 0 as id, value ->> 1 as status, unhex(value ->> 2) as error, value ->> 3 as attempt
          from json_each(?1)) e
 where semel_execution.id = e.id and semel_execution.status in ('pending', 'running', 'waiting')
returning id
