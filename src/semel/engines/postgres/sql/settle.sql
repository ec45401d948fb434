-- name: settle
-- End claimed tasks: the claim must still be this worker's. Gives the seqs that ended, as one text; what is missing
-- was taken away. Shared: worker; rows: lane, seq, status, output, error.
with ended as (
  delete from semel_ready r where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1
  returning r.execution, r.seq, r.attempt, r.claimed_at, array_position($3, r.seq) as at
), done as (
  update semel_execution x
     set status = ($4::text[])[e.at], output = ($5::bytea[])[e.at], error = ($6::bytea[])[e.at], attempt = e.attempt,
         started_at = e.claimed_at, finished_at = (select semel_now()), token = e.seq
    from ended e where x.id = e.execution
  returning x.id, x.namespace, x.status, x.retention, x.token
), slips as (
  insert into semel_slip (due_at, executions)
  select (select semel_now()) + greatest(retention, 5000000), string_agg(id, ',') from done group by retention
), dead as (
  insert into semel_dead (execution, namespace, status)
  select id, namespace, status from done where status <> 'completed'
)
select string_agg(token::text, ','),
       case when count(*) > 0 then pg_notify('semel_done', string_agg(id, ','))::text end
  from done

-- name: retry
-- Put claimed tasks off to a later attempt, except those that someone wants cancelled.
-- Shared: worker; rows: lane, seq, error, delay in microseconds.
with put_off as (
  delete from semel_ready r
   where r.lane = any($2::int[]) and r.seq = any($3::bigint[]) and r.owner = $1 and not r.cancel
  returning r.execution, r.seq, r.lane, r.name, r.attempt, r.max_attempts, r.crashes, r.concurrency_key,
            r.claimed_at, ($4::bytea[])[array_position($3, r.seq)] as error,
            ($5::bigint[])[array_position($3, r.seq)] as delay
), later as (
  insert into semel_later (execution, due_at, lane, name, attempt, max_attempts, crashes, concurrency_key)
  select execution, (select semel_now()) + delay, lane, name, attempt, max_attempts, crashes, concurrency_key
    from put_off
)
update semel_execution x
   set error = p.error, attempt = p.attempt, started_at = p.claimed_at, token = p.seq
  from put_off p where x.id = p.execution
returning x.token::text

-- name: settled
-- Which of these claims wrote last: after a lost reply, whether the settlement had been committed. Rows: execution, seq.
select x.id, x.token from unnest($1::text[], $2::bigint[]) as e(id, seq)
  join semel_execution x on x.id = e.id and x.token = e.seq

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
select pg_notify('semel_done', string_agg(id, ','))::text from done having count(*) > 0
