-- Each worker's row says how long its lease is: whoever takes it for dead must have seen the database answer for as
-- long as that. Workers of an older version do not say it: 30 seconds, the default, are assumed.

alter table semel_worker add column lease integer;
