-- What a message key stands for, so that another message under it is refused; null in rows from before.
alter table semel_seen add column mark text;

-- A message that failed: its handler and its arguments, to be looked at and sent again. Its key is free.
alter table semel_seen add column name text;

alter table semel_seen add column body blob;

create index semel_seen_failed on semel_seen (execution) where name is not null;
