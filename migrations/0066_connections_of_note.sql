-- Connections that are active and not healthy, newest first.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists connection_of_note;

-- Few of many. Connections of an integration with a fault are found by their integration.
create index concurrently connection_of_note
on connection (environment_id, created_at, id)
where
  (is_unverified or lacks_scopes or outage is not null or withheld is not null)
  and status = 'active'
  and deleted_at is null;
