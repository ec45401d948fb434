-- name: unstarted_before
-- Runs that are on record since before a time and not yet started: (namespace, time, limit).
select key, generation, schedule from semel_run
 where namespace = $1 and request is not null and created_at < $2 order by created_at limit $3

-- name: wake_schedule
-- Have a schedule looked at now, unless it is paused: (namespace, id).
update semel_schedule set due_at = semel_now() where namespace = $1 and id = $2 and paused_at is null returning id

-- name: set_back_cursor
-- A cursor that was ahead is set back: (namespace, id, ahead, cursor). One that has moved meanwhile stays as it is.
update semel_schedule set cursor = $4, due_at = case when paused_at is null then semel_now() end
 where namespace = $1 and id = $2 and cursor = $3 returning id

-- name: unrecorded_executions
-- Executions under keys that begin like those of runs, and have no run on record: (namespace, since, limit).
select x.key, x.id from semel_execution x
 where x.namespace = $1 and x.key > 'activity-' and x.key < 'activity.' and x.current and x.created_at > $2
   and not exists (select 1 from semel_run r where r.key = x.key and r.namespace = x.namespace)
 order by x.key limit $3

-- name: recorded_keys
-- Those of these keys that runs on record have. Shared: namespace; rows: key.
select distinct r.key from unnest($2::text[]) as o(key) join semel_run r on r.key = o.key and r.namespace = $1
