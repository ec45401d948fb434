-- Each worker's row says how long its lease is: whoever takes it for dead must have seen the database answer for as
-- long as that. Workers of an older version do not say it: 30 seconds, the default, are assumed. And announcements fit
-- into a notification, however many lanes they are about.

alter table semel_worker add column lease bigint;

-- What pg_notify takes is shorter than 8,000 bytes. A longer list becomes an empty one, which means: look at everything.
create function semel_payload(list text) returns text language sql immutable parallel safe
  as $$ select case when octet_length(list) < 8000 then list else '' end $$;

-- As before, but for the payload of semel_work.
create or replace function semel_wake() returns trigger language plpgsql as $$
declare
  known text[];
  sleeping text[];
  awake text[];
  lanes text;
begin
  select array_agg(f.execution), array_agg(f.execution) filter (where f.asleep),
         array_agg(f.execution) filter (where not f.asleep)
    into known, sleeping, awake
    from (select p.execution, p.asleep from semel_flow p
           where p.execution = any(array(select c.execution from came c)) order by p.execution for update) f;
  if (select count(distinct c.execution) from came c) > coalesce(cardinality(known), 0) then
    delete from semel_inbox i
     where i.execution = any(array(select c.execution from came c where c.execution <> all(coalesce(known, '{}'))));
  end if;
  if sleeping is not null then
    update semel_flow set asleep = false, due_at = null where execution = any(sleeping);
    with placed as (
      update semel_execution x
         set lane = (select f.lane from semel_flow f where f.execution = x.id), seq = default
       where x.id = any(sleeping) returning x.lane, x.seq, x.id, x.name, x.max_attempts
    ), ready as (
      insert into semel_ready (lane, seq, execution, name, max_attempts)
      select lane, seq, id, name, max_attempts from placed returning lane
    )
    select string_agg(distinct lane::text, ',') into lanes from ready;
    perform pg_notify('semel_work', semel_payload(lanes));
  end if;
  for place in 1 .. coalesce(cardinality(awake), 0) by 200 loop
    perform pg_notify('semel_news', array_to_string(awake[place : place + 199], ','));
  end loop;
  return null;
end $$;
