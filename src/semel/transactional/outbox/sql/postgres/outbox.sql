-- name: outbox_exists
-- Is there an outbox in this database?
select 1 where to_regclass('outbox_events') is not null

-- name: database_name
-- What people call this database, for messages.
select current_database()::text

-- name: add_events
-- Write rows, in the transaction of whoever asks for what is in them.
insert into outbox_events
  (namespace, event_type, aggregate_id, payload, key, fingerprint, order_key, on_failure, max_retries)
select namespace, event_type, aggregate_id, payload::json, key, fingerprint, order_key, on_failure, max_retries
from unnest(
  $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[], $9::integer[]
) with ordinality as given (
  namespace, event_type, aggregate_id, payload, key, fingerprint, order_key, on_failure, max_retries, position
) order by position

-- name: destination
-- Does the engine answer? If not: how often it was tried, and the seconds until the next try.
select failures, extract(epoch from retry_at - now())::float8 from outbox_destinations where namespace = $1

-- name: take_probe
-- Be the one relay that tries whether the engine answers again; the others wait for so many seconds.
update outbox_destinations set retry_at = now() + $2::float8 * interval '1 second' where namespace = $1 and retry_at <= now() returning failures

-- name: due_events
-- Rows that may be taken, those that have waited longest first. A row with an order_key waits for earlier ones.
select id, event_type, aggregate_id, payload::text, status, retry_count, max_retries, last_error, created_at,
  processed_at, namespace, key, execution_id, order_key, on_failure, next_attempt_at, leased_by
from outbox_events as o
where namespace = $1 and status = 'pending' and next_attempt_at <= now()
  and (event_type like 'semel.%' or event_type in (select json_array_elements_text($3::json)))
  and (order_key is null or not exists (
    select 1 from outbox_events as e
    where e.namespace = o.namespace and e.order_key = o.order_key and e.id < o.id
      and (e.status = 'pending' or (e.status = 'failed' and e.on_failure = 'hold'))
  ))
order by next_attempt_at, id
limit $2::integer
for update of o skip locked

-- name: lease_events
-- Take rows for so many seconds.
update outbox_events as o
set lease_token = $1, leased_by = $2, next_attempt_at = now() + $3::float8 * interval '1 second'
from unnest($4::bigint[]) as given (id)
where o.id = given.id
returning o.id

-- name: mark_processed
-- What rows ask for is done. Only while the lease holds.
update outbox_events as o set status = 'processed', processed_at = now(),
  execution_id = given.execution, last_error = null, lease_token = null, leased_by = null
from unnest($2::bigint[], $3::text[]) as given (id, execution)
where o.id = given.id and o.status = 'pending' and o.lease_token = $1 and o.next_attempt_at > now()
returning o.id

-- name: mark_error
-- Rows could not be carried out, and are tried again later, or fail for good. Only while the lease holds.
update outbox_events as o set status = case when retry_count + 1 >= max_retries then 'failed' else 'pending' end,
  next_attempt_at = now() + given.pause::float8 * interval '1 second', last_error = given.error, lease_token = null, leased_by = null,
  retry_count = retry_count + 1
from unnest($2::bigint[], $3::float8[], $4::text[]) as given (id, pause, error)
where o.id = given.id and o.status = 'pending' and o.lease_token = $1 and o.next_attempt_at > now()
returning o.id

-- name: mark_failed
-- Rows can never be carried out. Only while the lease holds.
update outbox_events as o set status = 'failed', retry_count = retry_count + 1, last_error = given.error, lease_token = null, leased_by = null
from unnest($2::bigint[], $3::text[]) as given (id, error)
where o.id = given.id and o.status = 'pending' and o.lease_token = $1 and o.next_attempt_at > now()
returning o.id

-- name: put_off
-- Give rows back, to be taken again after so many seconds; it is no try. Only while the lease holds.
update outbox_events as o set next_attempt_at = now() + given.pause::float8 * interval '1 second',
  last_error = coalesce(given.reason, o.last_error), lease_token = null, leased_by = null
from unnest($2::bigint[], $3::float8[], $4::text[]) as given (id, pause, reason)
where o.id = given.id and o.status = 'pending' and o.lease_token = $1 and o.next_attempt_at > now()
returning o.id

-- name: note_unavailable
-- The engine does not answer: nobody tries it for so many seconds. Of several that notice, one counts.
insert into outbox_destinations as known (namespace, failures, retry_at, last_error)
values ($1, 1, now() + $3::float8 * interval '1 second', $4)
on conflict (namespace) do update
  set failures = known.failures + 1, retry_at = excluded.retry_at, last_error = excluded.last_error
  where known.failures = $2::integer

-- name: forget_unavailable
-- The engine answers again.
delete from outbox_destinations where namespace = $1

-- name: next_due
-- Seconds until some row may be taken; negative if one has been waiting.
select extract(epoch from min(next_attempt_at) - now())::float8 from outbox_events
where namespace = $1 and status = 'pending'

-- name: beat
-- This relay lives, for so many seconds more.
insert into outbox_relays (id, namespace, expires_at, idle)
values ($1, $2, now() + $3::float8 * interval '1 second', $4::boolean)
on conflict (id) do update set expires_at = excluded.expires_at, idle = excluded.idle

-- name: leave
-- This relay stops.
delete from outbox_relays where id = $1

-- name: forget_relays
-- Forget relays that died some seconds ago.
delete from outbox_relays where expires_at < now() - $1::float8 * interval '1 second'

-- name: clean_processed
-- Delete some rows that were processed so many seconds ago.
delete from outbox_events where id in (
  select id from outbox_events
  where status = 'processed' and namespace = $1 and created_at < now() - $2::float8 * interval '1 second' and processed_at < now() - $2::float8 * interval '1 second'
  order by created_at limit $3::integer for update skip locked
) and status = 'processed' returning id

-- name: purge_failed
-- Delete some rows that failed for good and were written so many seconds ago.
delete from outbox_events where id in (
  select id from outbox_events where status = 'failed' and namespace = $1 and created_at < now() - $2::float8 * interval '1 second'
  order by created_at limit $3::integer for update skip locked
) and status = 'failed' returning id

-- name: clean_inbox
-- Delete some keys of effects that need not be remembered any longer.
delete from inbox_keys where key in (
  select key from inbox_keys where expires_at < now() order by expires_at limit $1::integer for update skip locked
) returning key

-- name: list_events
-- Rows of one status, or of all (empty), newest first, older than one of them.
select id, event_type, aggregate_id, payload::text, status, retry_count, max_retries, last_error, created_at,
  processed_at, namespace, key, execution_id, order_key, on_failure, next_attempt_at, leased_by from outbox_events
where namespace = $1 and ($2::text = '' or status = $2::text) and id < $3::bigint
order by id desc limit $4::integer

-- name: get_event
-- One row.
select id, event_type, aggregate_id, payload::text, status, retry_count, max_retries, last_error, created_at,
  processed_at, namespace, key, execution_id, order_key, on_failure, next_attempt_at, leased_by from outbox_events where id = $1::bigint

-- name: find_start
-- The newest start that goes by an aggregate_id.
select status, payload::text, last_error, created_at from outbox_events
where namespace = $1 and aggregate_id = $2 and event_type = 'semel.start'
order by id desc limit 1

-- name: find_key
-- The newest row that starts something under a key. Where its aggregate_id is another one: of the 10,000 rows that wait
-- or have failed, the newest of each, so that a look stays cheap however long nobody relays.
select id, event_type, aggregate_id, payload::text, status, retry_count, max_retries, last_error, created_at,
  processed_at, namespace, key, execution_id, order_key, on_failure, next_attempt_at, leased_by from outbox_events
where id = (select max(id) from (
  select id from outbox_events where namespace = $1 and aggregate_id = $2 and key = $2
    and event_type in ('semel.start', 'semel.task', 'semel.workflow')
  union all
  select id from (select id, key, event_type from outbox_events where status = 'pending' and namespace = $1
    order by created_at desc limit 10000) as pending
  where key = $2 and event_type in ('semel.start', 'semel.task', 'semel.workflow')
  union all
  select id from (select id, key, event_type from outbox_events where status = 'failed' and namespace = $1
    order by created_at desc limit 10000) as failed
  where key = $2 and event_type in ('semel.start', 'semel.task', 'semel.workflow')
) as found)

-- name: redrive_event
-- Try a row again that failed for good.
update outbox_events set status = 'pending', retry_count = 0, next_attempt_at = now(), lease_token = null, leased_by = null
where id = $1::bigint and status = 'failed' returning id

-- name: redrive_failed
-- Try some rows again that failed for good.
update outbox_events set status = 'pending', retry_count = 0, next_attempt_at = now(), lease_token = null, leased_by = null
where id in (
  select id from outbox_events where status = 'failed' and namespace = $1 order by created_at limit $2::integer
) and status = 'failed' returning id

-- name: processed_since
-- Some rows that were processed at a time (seconds since 1970) or later, in their order, after one of them.
select id from outbox_events
where namespace = $1 and status = 'processed' and processed_at >= to_timestamp($2::float8) and id > $3::bigint
order by id limit $4::integer

-- name: redrive_processed
-- Carry out rows again that were processed.
update outbox_events as o set status = 'pending', retry_count = 0, next_attempt_at = now(), processed_at = null, execution_id = null
from unnest($1::bigint[]) as given (id)
where o.id = given.id and o.status = 'processed' returning o.id

-- name: outbox_counts
-- Rows that wait, the seconds that the oldest has waited, rows that failed, the highest retry count, live relays.
-- Each is counted up to 100,000, so that a look stays cheap however long nobody relays.
select
  (select count(*) from (select 1 from outbox_events where status = 'pending' and namespace = $1 limit 100000) as counted),
  (select extract(epoch from min(created_at) - now())::float8 from outbox_events where status = 'pending' and namespace = $1),
  (select count(*) from (select 1 from outbox_events where status = 'failed' and namespace = $1 limit 100000) as counted),
  (select max(retry_count) from (select retry_count from outbox_events where status = 'pending' and namespace = $1 limit 100000) as counted),
  (select count(*) from outbox_relays where namespace = $1 and expires_at > now())

-- name: record_key
-- Record the key of an effect for so many seconds; no row: it has been recorded before.
insert into inbox_keys (key, expires_at) values ($1, now() + $2::float8 * interval '1 second')
on conflict (key) do nothing returning key

-- name: renew_key
-- Record the key of an effect again whose time is over; no row: it is not over.
update inbox_keys set recorded_at = now(), expires_at = now() + $2::float8 * interval '1 second'
where key = $1 and expires_at <= now() returning key

-- name: inbox_exists
-- Is there a table for keys of effects in this database?
select 1 where to_regclass('inbox_keys') is not null
