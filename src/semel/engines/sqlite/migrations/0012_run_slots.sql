-- Runs of schedules are listed by their slots; runs for events and by hand are not: an event need not pay for the index.
-- SQLite: it was lost when the table was made anew.
create index semel_run_slot on semel_run (slot, namespace) where why not in ('manual', 'event', 'replay');
