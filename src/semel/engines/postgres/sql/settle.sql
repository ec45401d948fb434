-- name: settle
-- End claimed tasks: the claim must still be this worker's. Gives the tokens that ended, as one text; what is missing
-- was taken away. Shared: worker; rows: lane, seq, token, execution, status, output, error. A row is found by its place
-- and known by token and execution: another one may have come to its place since. Beside them the tokens of those that
-- a flow waited for.
with ended as (
  delete from semel_ready r
   where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1
     and r.execution = ($5::text[])[array_position($4::bigint[], r.token)]
  returning r.execution, r.token, r.attempt, r.claimed_at, array_position($4, r.token) as at
), done as (
  update semel_execution x
     set status = ($6::text[])[e.at], output = ($7::bytea[])[e.at], error = ($8::bytea[])[e.at], attempt = e.attempt,
         started_at = e.claimed_at, finished_at = (select semel_now()), token = e.token
    from ended e where x.id = e.execution
  returning x.id, x.namespace, x.status, x.retention, x.token, x.waiters
), slips as (
  insert into semel_slip (due_at, executions)
  select (select semel_now()) + greatest(retention, 5000000), string_agg(id, ',') from done group by retention
), dead as (
  insert into semel_dead (execution, namespace, status)
  select id, namespace, status from done where status <> 'completed'
)
select string_agg(token::text, ','), string_agg(token::text, ',') filter (where waiters is not null),
       case when count(*) > 0 then pg_notify('semel_done', semel_payload(string_agg(id, ',')))::text end
  from done

-- name: retry
-- Put claimed tasks off to a later attempt, except those that someone wants cancelled.
-- Shared: worker; rows: lane, seq, token, execution, error, delay in microseconds.
with put_off as (
  delete from semel_ready r
   where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1 and not r.cancel
     and r.execution = ($5::text[])[array_position($4::bigint[], r.token)]
  returning r.execution, r.token, r.lane, r.name, r.attempt, r.max_attempts, r.crashes, r.concurrency_key,
            r.claimed_at, ($6::bytea[])[array_position($4, r.token)] as error,
            ($7::bigint[])[array_position($4, r.token)] as delay
), later as (
  insert into semel_later (execution, due_at, lane, name, attempt, max_attempts, crashes, concurrency_key)
  select execution, (select semel_now()) + delay, lane, name, attempt, max_attempts, crashes, concurrency_key
    from put_off
)
update semel_execution x
   set error = p.error, attempt = p.attempt, started_at = p.claimed_at, token = p.token
  from put_off p where x.id = p.execution
returning x.token::text

-- name: last_errors
-- What was written down last of these executions, and the time. Rows: execution.
select x.id, x.error, (select semel_now()) from unnest($1::text[]) as e(id) join semel_execution x on x.id = e.id

-- name: uncount_attempts
-- Tasks that were put off without having been run: the attempt of the claim does not count.
-- Rows: execution, attempt of the claim.
with uncounted as (
  update semel_later l set attempt = l.attempt - 1
    from unnest($1::text[], $2::int[]) as e(id, attempt)
   where l.execution = e.id and l.attempt = e.attempt and l.execution = any($1)
  returning l.execution, l.attempt
)
update semel_execution x set attempt = u.attempt from uncounted u where x.id = u.execution

-- name: settled
-- Which of these claims wrote last: after a lost reply, whether the settlement had been committed. Rows: execution, token.
select x.id, x.token from unnest($1::text[], $2::bigint[]) as e(id, token)
  join semel_execution x on x.id = e.id and x.token = e.token

-- name: end
-- End executions that nobody runs: cancelled while waiting, or lost with their worker too often.
-- Rows: execution, status, error, attempt.
with done as (
  update semel_execution x
     set status = e.status, error = e.error, attempt = e.attempt, finished_at = (select semel_now())
    from unnest($1::text[], $2::text[], $3::bytea[], $4::int[]) as e(id, status, error, attempt)
   where x.id = e.id and x.status in ('pending', 'running', 'waiting')
  returning x.id, x.namespace, x.status, x.retention
), slips as (
  insert into semel_slip (due_at, executions)
  select (select semel_now()) + greatest(retention, 5000000), string_agg(id, ',') from done group by retention
), dead as (
  insert into semel_dead (execution, namespace, status) select id, namespace, status from done
)
select id from done
union all
select pg_notify('semel_done', semel_payload(string_agg(id, ',')))::text from done having count(*) > 0
