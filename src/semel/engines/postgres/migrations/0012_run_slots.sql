-- Runs of schedules are listed by their slots; runs for events and by hand are not: an event need not pay for the index.
drop index semel_run_slot;

create index semel_run_slot on semel_run (slot, namespace) where why not in ('manual', 'event', 'replay');
