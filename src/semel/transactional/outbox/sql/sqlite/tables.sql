-- What has to happen once a transaction of yours is committed, one row each. A relay takes the rows, oldest first, and
-- starts what they ask for. `key`, `fingerprint` and `execution_id` say what a row starts; `payload` holds all of it.
-- Times are text in UTC, to the millisecond.
create table if not exists outbox_events (
  id integer not null primary key autoincrement,
  event_type varchar(100) not null,
  aggregate_id text,
  payload text not null default '{}',
  status text not null default 'pending',
  retry_count integer not null default 0,
  max_retries integer not null default 10,
  last_error text,
  created_at text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  processed_at text,
  namespace text not null default 'default',
  key text,
  fingerprint blob,
  execution_id text,
  order_key text,
  on_failure text not null default 'hold',
  -- When a relay may take it; while one has it, the end of its lease.
  next_attempt_at text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  lease_token text,
  leased_by text,
  constraint outbox_events_event_type_check check (length(event_type) <= 100),
  constraint outbox_events_payload_check check (json_valid(payload)),
  constraint outbox_events_status_check check (status in ('pending', 'processed', 'failed')),
  constraint outbox_events_on_failure_check check (on_failure in ('hold', 'continue'))
);
create index if not exists outbox_events_status on outbox_events (status, created_at);
create index if not exists outbox_events_aggregate on outbox_events (aggregate_id);
create index if not exists outbox_events_due on outbox_events (namespace, status, next_attempt_at, id)
  where status = 'pending';
create index if not exists outbox_events_order on outbox_events (namespace, order_key, status, id)
  where order_key is not null and status <> 'processed';

-- Relays that live.
create table if not exists outbox_relays (
  id text not null primary key,
  namespace text not null,
  started_at text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  expires_at text not null,
  idle integer not null default 0
);

-- Engines that do not answer, with the time of the one next try that all relays share.
create table if not exists outbox_destinations (
  namespace text not null primary key,
  failures integer not null,
  retry_at text not null,
  last_error text not null,
  since text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);

-- Keys of effects that have happened in this database (`semel.once`).
create table if not exists inbox_keys (
  key text not null primary key,
  recorded_at text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  expires_at text not null
);
create index if not exists inbox_keys_expires on inbox_keys (expires_at);
