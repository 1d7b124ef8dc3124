-- The events of one connection are found, newest first.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists event_of_connection;

create index concurrently event_of_connection on event (environment_id, (data ->> 'connection_id'), position);
