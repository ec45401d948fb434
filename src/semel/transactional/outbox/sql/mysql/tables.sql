-- What has to happen once a transaction of yours is committed, one row each. A relay takes the rows, oldest first, and
-- starts what they ask for. `key`, `fingerprint` and `execution_id` say what a row starts; `payload` holds all of it.
-- Times are in UTC. Keys differ by case and accents, hence the binary collation.
create table if not exists outbox_events (
  id bigint not null auto_increment primary key,
  event_type varchar(100) not null,
  aggregate_id varchar(255),
  payload longtext not null default ('{}'),
  status varchar(10) not null default 'pending',
  retry_count integer not null default 0,
  max_retries integer not null default 10,
  last_error text,
  created_at datetime(6) not null default (utc_timestamp(6)),
  processed_at datetime(6),
  namespace varchar(255) not null default 'default',
  `key` varchar(255),
  fingerprint varbinary(64),
  execution_id varchar(1100),
  order_key varchar(255),
  on_failure varchar(10) not null default 'hold',
  -- When a relay may take it; while one has it, the end of its lease.
  next_attempt_at datetime(6) not null default (utc_timestamp(6)),
  lease_token varchar(64),
  leased_by varchar(255),
  constraint outbox_events_payload_check check (json_valid(payload)),
  constraint outbox_events_status_check check (status in ('pending', 'processed', 'failed')),
  constraint outbox_events_on_failure_check check (on_failure in ('hold', 'continue')),
  index outbox_events_status (status, created_at),
  index outbox_events_aggregate (aggregate_id),
  index outbox_events_due (namespace, status, next_attempt_at, id),
  index outbox_events_order (namespace, order_key, status, id)
) engine = innodb character set utf8mb4 collate utf8mb4_bin;

-- Relays that live.
create table if not exists outbox_relays (
  id varchar(255) primary key,
  namespace varchar(255) not null,
  started_at datetime(6) not null default (utc_timestamp(6)),
  expires_at datetime(6) not null,
  idle boolean not null default false
) engine = innodb character set utf8mb4 collate utf8mb4_bin;

-- Engines that do not answer, with the time of the one next try that all relays share.
create table if not exists outbox_destinations (
  namespace varchar(255) primary key,
  failures integer not null,
  retry_at datetime(6) not null,
  last_error text not null,
  since datetime(6) not null default (utc_timestamp(6))
) engine = innodb character set utf8mb4 collate utf8mb4_bin;

-- Keys of effects that have happened in this database (`semel.once`).
create table if not exists inbox_keys (
  `key` varchar(255) primary key,
  recorded_at datetime(6) not null default (utc_timestamp(6)),
  expires_at datetime(6) not null,
  index inbox_keys_expires (expires_at)
) engine = innodb character set utf8mb4 collate utf8mb4_bin;
