-- Undo tables.sql. Rows that no relay has taken yet are lost.
drop table if exists outbox_events;
drop table if exists outbox_relays;
drop table if exists outbox_destinations;
drop table if exists inbox_keys;
