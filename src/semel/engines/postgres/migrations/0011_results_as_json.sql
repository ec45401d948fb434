-- Inputs, results and errors as JSON for people's SQL, beside the bytes that Semel itself reads. `json` and not `jsonb`,
-- which cannot hold every string: one with a NUL in it would make the whole query fail.

create or replace view semel_executions as
  select x.id, x.namespace, x.kind, x.name, x.key, coalesce(l.queue, '') as queue, coalesce(l.priority, 0) as priority,
         case when x.status <> 'pending' then x.status when r.owner is not null then 'running'
              when f.asleep then 'waiting' else 'pending' end as status,
         coalesce(r.attempt, d.attempt, x.attempt) as attempt, x.max_attempts, x.created_at,
         coalesce(d.due_at, f.due_at) as run_at, coalesce(r.claimed_at, x.started_at) as started_at, x.finished_at,
         x.retention, x.dedup_window, x.generation, x.previous_id, w.name as worker, r.progress,
         coalesce(r.cancel, false) as cancel_requested, coalesce(f.parked, x.error) as error, x.stripped, x.current,
         x.fingerprint, x.input, x.output, x.parent_id,
         x.finished_at is null and (l.id is null or r.execution is null and d.execution is null
                                    and not coalesce(f.asleep, false)) as stranded,
         convert_from(x.input, 'UTF8')::json as input_json,
         case when x.status = 'completed' and not x.stripped
              then coalesce(convert_from(x.output, 'UTF8')::json, 'null'::json) end as result_json,
         convert_from(coalesce(f.parked, x.error), 'UTF8')::json as error_json
    from semel_execution x
    left join semel_lane l on l.id = x.lane
    left join semel_ready r on r.lane = x.lane and r.seq = x.seq and r.execution = x.id
    left join semel_later d on d.execution = x.id
    left join semel_flow f on f.execution = x.id
    left join semel_worker w on w.id = r.owner;
