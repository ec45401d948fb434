-- name: get
-- One execution by id: (namespace, id).
select id, kind, name, key, queue, priority, status, attempt, max_attempts, created_at, run_at, started_at,
       finished_at, retention, dedup_window, generation, previous_id, worker, progress, cancel_requested, error,
       stripped, parent_id, stranded
  from semel_executions where namespace = $1 and id = $2

-- name: ids_like
-- Ids that begin with a prefix, newest first, for people who type: (namespace, from, before).
select id from semel_execution where namespace = $1 and id >= $2 and id < $3 order by id limit 2

-- name: find
-- The newest execution under a key: (namespace, kind, key).
select id, kind, name, key, queue, priority, status, attempt, max_attempts, created_at, run_at, started_at,
       finished_at, retention, dedup_window, generation, previous_id, worker, progress, cancel_requested, error,
       stripped, parent_id, stranded
  from semel_executions where namespace = $1 and kind = $2 and key = $3 and current

-- name: outcome
-- How an execution ended, or that it has not: (namespace, id).
select status, output, error, stripped from semel_execution where namespace = $1 and id = $2

-- name: outcomes
-- How these executions stand, those that exist. Rows: id.
-- PostgreSQL: one look-up for each id, whatever the statistics say.
select x.id, x.status, x.output, x.error, x.stripped from unnest($1::text[]) as o(id)
 cross join lateral (select * from semel_execution p where p.id = o.id limit 1) x

-- name: input
-- The input of an execution, while retention keeps it: (namespace, id).
select input, name from semel_execution where namespace = $1 and id = $2

-- name: recent
-- Executions newest first: (namespace, before id, queue, name, kind, status, limit); nulls match all.
select id, kind, name, key, queue, priority, status, attempt, max_attempts, created_at, run_at, started_at,
       finished_at, retention, dedup_window, generation, previous_id, worker, progress, cancel_requested, error,
       stripped, parent_id, stranded
  from semel_executions
 where namespace = $1 and ($2::text is null or id < $2) and ($3::text is null or queue = $3)
   and ($4::text is null or name = $4) and ($5::text is null or kind = $5) and ($6::text is null or status = $6)
 order by id desc limit $7

-- name: recent_live
-- The same for executions that have not ended. PostgreSQL: goes back from the newest until there are enough.
select id, kind, name, key, queue, priority, status, attempt, max_attempts, created_at, run_at, started_at,
       finished_at, retention, dedup_window, generation, previous_id, worker, progress, cancel_requested, error,
       stripped, parent_id, stranded
  from semel_executions
 where namespace = $1 and ($2::text is null or id < $2) and ($3::text is null or queue = $3)
   and ($4::text is null or name = $4) and ($5::text is null or kind = $5) and ($6::text is null or status = $6)
   and status in ('pending', 'running', 'waiting')
 order by id desc limit $7

-- name: recent_dead
-- The same for executions that ended other than well; reads only those.
select id, kind, name, key, queue, priority, status, attempt, max_attempts, created_at, run_at, started_at,
       finished_at, retention, dedup_window, generation, previous_id, worker, progress, cancel_requested, error,
       stripped, parent_id, stranded
  from semel_executions
 where namespace = $1 and ($2::text is null or id < $2) and ($3::text is null or queue = $3)
   and ($4::text is null or name = $4) and ($5::text is null or kind = $5) and status = $6
   and id in (select execution from semel_dead where namespace = $1 and status = $6)
 order by id desc limit $7

-- name: recent_found
-- The same for workflows with all of these search attributes: (…, names, values).
select id, kind, name, key, queue, priority, status, attempt, max_attempts, created_at, run_at, started_at,
       finished_at, retention, dedup_window, generation, previous_id, worker, progress, cancel_requested, error,
       stripped, parent_id, stranded
  from semel_executions
 where namespace = $1 and ($2::text is null or id < $2) and ($3::text is null or queue = $3)
   and ($4::text is null or name = $4) and ($5::text is null or kind = $5) and ($6::text is null or status = $6)
   and id in (select a.execution from unnest($8::text[], $9::text[]) as o(name, value)
               cross join lateral (
                 select * from semel_attribute p where p.name = o.name and p.value = o.value offset 0) a
               group by a.execution having count(*) = cardinality($8::text[]))
 order by id desc limit $7

-- name: recent_scheduled
-- Runs of schedules by their slots, newest first: (…, first slot, slot after the last). After a page: older than its last.
select v.id, v.kind, v.name, v.key, v.queue, v.priority, v.status, v.attempt, v.max_attempts, v.created_at, v.run_at,
       v.started_at, v.finished_at, v.retention, v.dedup_window, v.generation, v.previous_id, v.worker, v.progress,
       v.cancel_requested, v.error, v.stripped, v.parent_id, v.stranded
  from semel_run r join semel_executions v on v.id = r.execution
 where r.namespace = $1 and r.slot >= $8 and r.slot < $9 and r.why not in ('manual', 'event', 'replay')
   and ($2::text is null or (r.slot, v.id) < (
     select b.slot, b.execution from semel_execution x
       join semel_run b on b.key = x.key and b.namespace = x.namespace and b.execution = x.id where x.id = $2))
   and ($3::text is null or v.queue = $3) and ($4::text is null or v.name = $4)
   and ($5::text is null or v.kind = $5) and ($6::text is null or v.status = $6)
 order by r.slot desc, v.id desc limit $7

-- name: history
-- Every execution under a key, newest first, at most 100: (namespace, kind, key).
with recursive chain as (
  select id, previous_id, 1 as depth from semel_execution
   where namespace = $1 and kind = $2 and key = $3 and current
  union all
  select x.id, x.previous_id, c.depth + 1 from chain c join semel_execution x on x.id = c.previous_id
   where c.depth < 100
)
select v.id, v.kind, v.name, v.key, v.queue, v.priority, v.status, v.attempt, v.max_attempts, v.created_at,
       v.run_at, v.started_at, v.finished_at, v.retention, v.dedup_window, v.generation, v.previous_id, v.worker,
       v.progress, v.cancel_requested, v.error, v.stripped, v.parent_id, v.stranded
  from chain c join semel_executions v on v.id = c.id order by c.depth

-- name: suppressed
-- Duplicates of an execution that did not run: (id). That it is shared is counted as joined already.
select execution, reason, times, first_at, last_at from semel_duplicate
 where execution = $1 and reason <> 'shared' order by first_at

-- name: queue_depths
-- Work by queue: name, ready, running, delayed: (namespace).
-- Work is counted once by lane and its lanes are looked up: there may be many lanes without any.
select queue, sum(ready)::bigint, sum(running)::bigint, sum(delayed)::bigint
  from (select l.queue, w.ready, w.running, w.delayed
          from (select lane, count(*) filter (where owner is null) as ready,
                       count(*) filter (where owner is not null) as running, 0 as delayed
                  from semel_ready group by lane
                union all select lane, 0, 0, count(*) from semel_later group by lane) w
          join semel_lane l on l.id = w.lane and l.namespace = $1
        union all select l.queue, 0, 0, 0 from semel_lane l where l.namespace = $1) q
 group by queue order by queue

-- name: backlog
-- What has not ended and does not run, by function and queue, with the oldest of each that only waits for a worker (else
-- the oldest of all), how many only do that, and since when the oldest of those does: (namespace).
select x.kind, g.name, g.queue, g.waiting, x.id, x.key, g.ready,
       (select o.created_at from semel_execution o where o.id = g.first)
  from (select w.name, l.queue, count(*) as waiting, min(w.execution) as oldest,
               count(*) filter (where w.ready) as ready,
               min(w.execution) filter (where w.ready) as first
          from (select r.lane, r.name, r.execution, true as ready from semel_ready r where r.owner is null
                union all select d.lane, d.name, d.execution, d.due_at <= (select semel_now()) from semel_later d
                union all select f.lane, f.name, f.execution, f.due_at is not null and f.due_at <= (select semel_now())
                            from semel_flow f where f.asleep) w
          join semel_lane l on l.id = w.lane and l.namespace = $1
         group by w.name, l.queue) g
  join semel_execution x on x.id = coalesce(g.first, g.oldest)
 order by x.kind, g.name, g.queue

-- name: strangers
-- What waits in front of these lanes, or sleeps, under other names: (namespace, lanes, names, rows of each lane).
select x.kind, w.name, l.queue, 1, x.id, x.key
  from (select r.lane, r.name, min(r.execution) as execution
          from unnest($2::int[]) as o(lane) cross join lateral (
            select s.lane, s.name, s.execution from semel_ready s where s.lane = o.lane and s.owner is null
             order by s.seq limit $4) r
         where r.name <> all($3::text[]) group by r.lane, r.name
        union all
        select f.lane, f.name, min(f.execution)
          from (select lane, name, execution from semel_flow where asleep order by execution limit $4) f
         where f.name <> all($3::text[]) group by f.lane, f.name) w
  join semel_lane l on l.id = w.lane and l.namespace = $1
  join semel_execution x on x.id = w.execution

-- name: queue_lags
-- By queue: how many wait for a worker and for nothing else, up to $2 in each lane, and since when the oldest of them
-- does, with the time: (namespace, most). Looks at the first twenty of each lane that were not tried yet: since when one
-- waits that was, or a flow that was woken, is not known.
select q.queue, sum(q.pending)::bigint, min(q.since), (select semel_now())
  from (select l.queue,
               (select count(*) from (select 1 from semel_ready r where r.lane = l.id and r.owner is null limit $2) c)
                 as pending,
               (select min(coalesce(x.run_at, x.created_at)) from semel_execution x
                 where x.id = any(array(select s.execution from semel_ready s
                                         where s.lane = l.id and s.owner is null and s.attempt = 0
                                         order by s.seq limit 20))
                   and (x.kind = 'task' or (select 1 from semel_journal j where j.execution = x.id limit 1) is null))
                 as since
          from semel_lane l where l.namespace = $1) q
 group by q.queue order by q.queue

-- name: workers
-- Workers with a lease: (namespace).
select id, name, queues, started_at, expires_at, functions, (select semel_now()) from semel_worker
 where namespace = $1 order by id

-- name: clock
-- The time by the clock that leases go by.
select semel_now()

-- name: stranded
-- Executions that live and that nothing will ever run, newest first: (namespace, limit). Looks at the newest twenty
-- thousand, and at all work that is in a lane which is gone.
select v.kind, v.name, coalesce(v.key, v.id) from semel_executions v
 where v.namespace = $1 and v.stranded and v.id in (
   select id from (select x.id from semel_execution x order by x.id desc limit 20000) newest
   union all
   select r.execution from semel_ready r where not exists (select 1 from semel_lane l where l.id = r.lane)
   union all
   select d.execution from semel_later d where not exists (select 1 from semel_lane l where l.id = d.lane))
 order by v.id desc limit $2

-- name: hanging_sessions
-- Sessions of Semel in this database that have been busy with one statement, or idle in a transaction, for over a minute.
select application_name, state, extract(epoch from now() - state_change)::int from pg_stat_activity
 where datname = current_database() and application_name like 'semel %' and pid <> pg_backend_pid()
   and (state = 'active' or state like 'idle in transaction%') and state_change < now() - interval '1 minute'
 order by state_change
