-- name: due_slips
-- Slips whose time has come, oldest first: (limit). Taken out here, written anew for what must stay.
delete from semel_slip where id = any(array(
  select id from semel_slip where due_at <= (select semel_now()) order by due_at limit $1 for update skip locked))
returning executions

-- name: fates
-- What decides the fate of finished executions; the last: is a flow that asked for it, however far above, still open?
-- Rows: id.
select x.id, x.key is not null and x.current, x.finished_at, x.retention, x.dedup_window, (select semel_now()),
       x.parent_id is not null and exists (
         with recursive above (id) as (
           select x.parent_id union all
           select p.parent_id from above a join semel_execution p on p.id = a.id where p.parent_id is not null)
         select from above a where exists (select from semel_flow f where f.execution = a.id offset 0))
  from unnest($1::text[]) as o(id) join semel_execution x on x.id = o.id and x.finished_at is not null

-- name: strip
-- Drop input, result and error; the key and its fingerprint stay. Rows: id.
update semel_execution x set input = null, output = null, error = null, stripped = true
  from unnest($1::text[]) as o(id) where x.id = o.id

-- name: forget
-- Delete executions and all that is known of them. Rows: id.
with gone as (
  delete from semel_execution
   where id = any($1::text[]) and status in ('completed', 'failed', 'cancelled', 'timed_out') returning id
), dead as (
  delete from semel_dead where execution = any($1)
)
delete from semel_duplicate where execution = any($1)

-- name: slip
-- Look at these executions again later. Rows: due_at, executions.
insert into semel_slip (due_at, executions) select * from unnest($1::bigint[], $2::text[])
