-- name: due_slips
-- Slips whose time has come, oldest first: (limit). Taken out here, written anew for what must stay.
delete from semel_slip where id in (
  select id from semel_slip where due_at <= semel_now() order by due_at limit ?1)
returning executions

-- name: fates
-- What decides the fate of finished executions. Rows: id.
select id, key is not null and current, finished_at, retention, dedup_window, semel_now()
  from semel_execution where id = ?1 and finished_at is not null

-- name: strip
-- Drop input, result and error; the key and its fingerprint stay. Rows: id.
update semel_execution set input = null, output = null, error = null, stripped = 1 where id = ?1

-- name: forget
-- Delete executions and all that is known of them. Rows: id.
delete from semel_execution
 where id = ?1 and status in ('completed', 'failed', 'cancelled', 'timed_out');
delete from semel_dead where execution = ?1;
delete from semel_duplicate where execution = ?1

-- name: slip
-- Look at these executions again later. Rows: due_at, executions.
insert into semel_slip (due_at, executions) values (?1, ?2)
