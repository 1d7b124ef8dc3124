-- Lists, counts and the jobs of each minute find their rows by an index, however many others there are.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists sync_troubled;

create index concurrently sync_troubled
on sync (function_id)
where state = 'paused' or held is not null or failures > 0;

drop index concurrently if exists sync_function_next;

create index concurrently sync_function_next on sync (function_id, next_at);

drop index concurrently if exists sync_of_function;

create index concurrently sync_of_function on sync (function_id, id);

drop index concurrently if exists sync_function;

drop index concurrently if exists sync_own_frequency;

create index concurrently sync_own_frequency on sync (next_at) where frequency_s is not null;

drop index concurrently if exists connection_of_integration;

create index concurrently connection_of_integration
on connection (integration_id, created_at desc, id desc) include (environment_id, status)
where deleted_at is null;

drop index concurrently if exists connection_end_user;

create index concurrently connection_end_user
on connection (environment_id, (end_user ->> 'id'))
where end_user ->> 'id' is not null and deleted_at is null;

drop index concurrently if exists connection_organization;

create index concurrently connection_organization
on connection (environment_id, (end_user -> 'organization' ->> 'id'))
where end_user -> 'organization' ->> 'id' is not null and deleted_at is null;

drop index concurrently if exists connection_tags;

-- Without a list of pending entries, which each search would read.
create index concurrently connection_tags
on connection using gin (tags jsonb_path_ops)
with (fastupdate = off)
where tags <> '{}' and deleted_at is null;

drop index concurrently if exists connection_deleted;

create index concurrently connection_deleted on connection (id) where deleted_at is not null;

drop index concurrently if exists run_unsuccessful;

create index concurrently run_unsuccessful
on run (environment_id, state, id desc)
where state in ('failed', 'cancelled');
