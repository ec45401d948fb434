-- name: settle
-- End claimed tasks: the claim must still be this worker's. Gives the (execution, seq) that ended; what is missing
-- was taken away. Shared: worker; rows: lane, seq, status, output, error. SQLite: a trigger ends the work row.
update semel_execution
   set status = ?4, output = ?5, error = ?6, token = ?3, finished_at = semel_now(),
       attempt = r.attempt, started_at = r.claimed_at
  from semel_ready r
 where r.seq = ?3 and r.lane = ?2 and r.owner = ?1 and semel_execution.id = r.execution
returning id, token

-- name: retry
-- Put claimed tasks off to a later attempt. Shared: worker; rows: lane, seq, error, delay in microseconds.
update semel_execution
   set error = ?4, token = ?3, attempt = r.attempt, started_at = r.claimed_at
  from semel_ready r
 where r.seq = ?3 and r.lane = ?2 and r.owner = ?1 and semel_execution.id = r.execution
returning id, token;
insert into semel_later (execution, due_at, lane, name, attempt, max_attempts, crashes, concurrency_key)
select execution, semel_now() + ?5, lane, name, attempt, max_attempts, crashes, concurrency_key
  from semel_ready where seq = ?3 and lane = ?2 and owner = ?1;
delete from semel_ready where seq = ?3 and lane = ?2 and owner = ?1

-- name: settled
-- Which of these claims wrote last: after a lost reply, whether the settlement had been committed. Rows: execution, seq.
select id, token from semel_execution where id = ?1 and token = ?2

-- name: end
-- End executions that nobody runs: cancelled while waiting, or lost with their worker too often.
-- Rows: execution, status, error, attempt.
update semel_execution set status = ?2, error = ?3, attempt = ?4, finished_at = semel_now()
 where id = ?1 and status in ('pending', 'running', 'waiting') returning id
