-- Each worker's row says which functions it has, so that work which nobody can run is noticed.

alter table semel_worker add column functions text;
