-- name: migrations_exist
-- Is the table of migrations there?
select count(*) from pg_class where oid = to_regclass('semel_migration')

-- name: identity
-- Which database this is: its name first, then what tells it from others of the same name.
select current_database()::text, to_regclass('semel_execution')::oid::bigint,
       (select oid from pg_database where datname = current_database())::bigint,
       (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint

-- name: make_migrations
-- The table of migrations itself.
create table if not exists semel_migration (number integer primary key, name text not null, applied_at bigint not null)

-- name: lock_migrations
-- One migration at a time; PostgreSQL: an advisory lock, held to the end of the transaction.
select pg_advisory_xact_lock(5994471019)

-- name: applied
-- The migrations that are in.
select number, name from semel_migration order by number

-- name: record_migration
-- A migration is in: (number, name).
insert into semel_migration (number, name, applied_at) values ($1, $2, (extract(epoch from now()) * 1000000)::bigint)
