-- Lists of connections by last use find a status or an integration in the index of their order.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists connection_by_use;

create index concurrently connection_by_use
on connection (environment_id, last_used_at desc nulls last, id desc)
include (integration_id, status)
where deleted_at is null;

drop index concurrently if exists connection_last_used;
