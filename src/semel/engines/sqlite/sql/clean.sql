-- name: due_slips
-- Slips whose time has come, oldest first: (limit). Taken out here, written anew for what must stay.
delete from semel_slip where id in (
  select id from semel_slip where due_at <= semel_now() order by due_at limit ?1)
returning executions

-- name: fates
-- What decides the fate of finished executions; the last: is a flow that asked for it, however far above, still open?
-- Rows: id.
select x.id, x.key is not null and x.current, x.finished_at, x.retention, x.dedup_window, semel_now(),
       x.parent_id is not null and exists (
         with recursive above (id) as (
           select x.parent_id union all
           select p.parent_id from above a join semel_execution p on p.id = a.id where p.parent_id is not null)
         select 1 from above a join semel_flow f on f.execution = a.id)
  from json_each(?1) o cross join semel_execution x on x.id = o.value ->> 0 and x.finished_at is not null

-- name: strip
-- Drop input, result and error; the key and its fingerprint stay. Rows: id.
update semel_execution set input = null, output = null, error = null, stripped = 1
 where id in (select value ->> 0 from json_each(?1))

-- name: forget
-- Delete executions and all that is known of them. Rows: id.
delete from semel_execution
 where id in (select value ->> 0 from json_each(?1)) and status in ('completed', 'failed', 'cancelled', 'timed_out');
delete from semel_dead where execution in (select value ->> 0 from json_each(?1));
delete from semel_duplicate where execution in (select value ->> 0 from json_each(?1))

-- name: slip
-- Look at these executions again later. Rows: due_at, executions.
insert into semel_slip (due_at, executions) select value ->> 0, value ->> 1 from json_each(?1)
