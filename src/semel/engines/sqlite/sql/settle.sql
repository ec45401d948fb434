-- name: settle
-- End claimed tasks: the claim must still be this worker's. Gives the tokens that ended; what is missing
-- was taken away. Shared: worker; rows: lane, seq, token, execution, status, output, error. A row is found by its place
-- and known by token and execution: another one may have come to its place since. Beside them the tokens of those that
-- a flow waited for. SQLite: a trigger ends the work row; `is not null` is wrong in a RETURNING of 3.40.
with e as materialized (
  select r.execution, r.token, r.attempt, r.claimed_at, d.value ->> 4 as status,
         bytes_at(d.value ->> 5) as output, bytes_at(d.value ->> 6) as error
    from json_each(?2) d cross join semel_ready r
      on r.seq = d.value ->> 1 and r.lane = d.value ->> 0 and r.owner = ?1
      and r.token = d.value ->> 2 and r.execution = d.value ->> 3
)
update semel_execution
   set status = e.status, output = e.output, error = e.error, attempt = e.attempt,
       started_at = e.claimed_at, finished_at = semel_now(), token = e.token
  from e where semel_execution.id = e.execution
returning cast(token as text), token || substr(waiters, 1, 0)

-- name: retry
-- Put claimed tasks off to a later attempt, except those that someone wants cancelled.
-- Shared: worker; rows: lane, seq, token, execution, error, delay in microseconds.
insert into semel_later (execution, due_at, lane, name, attempt, max_attempts, crashes, concurrency_key)
select r.execution, semel_now() + (d.value ->> 5), r.lane, r.name, r.attempt, r.max_attempts, r.crashes,
       r.concurrency_key
  from json_each(?2) d cross join semel_ready r
    on r.seq = d.value ->> 1 and r.lane = d.value ->> 0 and r.owner = ?1
      and r.token = d.value ->> 2 and r.execution = d.value ->> 3 and r.cancel = 0;
with e as materialized (
  select r.execution, r.token, r.attempt, r.claimed_at, bytes_at(d.value ->> 4) as error
    from json_each(?2) d cross join semel_ready r
      on r.seq = d.value ->> 1 and r.lane = d.value ->> 0 and r.owner = ?1
      and r.token = d.value ->> 2 and r.execution = d.value ->> 3 and r.cancel = 0
)
update semel_execution
   set error = e.error, attempt = e.attempt, started_at = e.claimed_at, token = e.token
  from e where semel_execution.id = e.execution
returning cast(token as text);
delete from semel_ready where owner = ?1 and cancel = 0 and seq in (
  select r.seq from json_each(?2) d cross join semel_ready r
    on r.seq = d.value ->> 1 and r.token = d.value ->> 2 and r.execution = d.value ->> 3)

-- name: last_errors
-- What was written down last of these executions, and the time. Rows: execution.
select x.id, x.error, semel_now() from json_each(?1) e cross join semel_execution x on x.id = e.value ->> 0

-- name: uncount_attempts
-- Tasks that were put off without having been run: the attempt of the claim does not count.
-- Rows: execution, attempt of the claim.
update semel_execution set attempt = semel_later.attempt - 1
  from json_each(?1) e cross join semel_later
 where semel_execution.id = e.value ->> 0 and semel_later.execution = e.value ->> 0
   and semel_later.attempt = e.value ->> 1;
update semel_later set attempt = semel_later.attempt - 1
  from json_each(?1) e
 where semel_later.execution = e.value ->> 0 and semel_later.attempt = e.value ->> 1

-- name: settled
-- Which of these claims wrote last: after a lost reply, whether the settlement had been committed. Rows: execution, token.
select x.id, x.token from json_each(?1) e cross join semel_execution x
    on x.id = e.value ->> 0 and x.token = e.value ->> 1

-- name: end
-- End executions that nobody runs: cancelled while waiting, or lost with their worker too often.
-- Rows: execution, status, error, attempt.
update semel_execution
   set status = e.status, error = e.error, attempt = e.attempt, finished_at = semel_now()
  from (select value ->> 0 as id, value ->> 1 as status, bytes_at(value ->> 2) as error, value ->> 3 as attempt
          from json_each(?1)) e
 where semel_execution.id = e.id and semel_execution.status in ('pending', 'running', 'waiting')
returning id
