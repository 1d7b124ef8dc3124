-- Lists and jobs find few of many rows: the newest names, and connections that were deleted a short time ago.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists connection_name_newest;

create index concurrently connection_name_newest
on connection_name (environment_id, created_at desc, connection_id desc);

drop index concurrently if exists connection_deleted;

create index concurrently connection_deleted on connection (deleted_at, id) where deleted_at is not null;
