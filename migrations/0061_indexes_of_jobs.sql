-- Jobs and look-ups find what is due, or few of many rows, by an index.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists consumer_silent;

-- Not partial: a statement about one dataset could read a partial index whole.
create index concurrently consumer_silent
on consumer ((case when stale_at is null then greatest(acknowledged_at, silent_from) end));

drop index concurrently if exists dataset_closed;

create index concurrently dataset_closed on dataset (id) where closed;

drop index concurrently if exists dataset_leftovers;

create index concurrently dataset_leftovers on dataset (id) where has_leftovers;

drop index concurrently if exists tracked_place;

-- In the order of the marks, which are read, merged and removed in parts.
create index concurrently tracked_place on tracked (dataset_id, id);

drop index concurrently if exists tracked_dataset;

drop index concurrently if exists connection_own_client;

-- Few connections have their own client.
create index concurrently connection_own_client
on connection (integration_id)
where has_own_client and deleted_at is null;
