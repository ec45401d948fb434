-- name: migrations_exist
-- Is the table of migrations there?
select count(*) from sqlite_master where type = 'table' and name = 'semel_migration'

-- name: identity
-- Which database this is. SQLite: a number, a name and the file of each that is open, the main one first; a select would
-- read the file, and a transaction that has read may not be able to write.
pragma database_list

-- name: make_migrations
-- The table of migrations itself.
create table if not exists semel_migration (number integer primary key, name text not null, applied_at integer not null)

-- name: lock_migrations
-- One migration at a time; SQLite: the transaction is the lock.
select 1

-- name: applied
-- The migrations that are in.
select number, name from semel_migration order by number

-- name: record_migration
-- A migration is in: (number, name).
insert into semel_migration (number, name, applied_at) values (?1, ?2, semel_now())
