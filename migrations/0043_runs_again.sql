-- Of a sync that is asked for while a run of it goes on: it runs once more.
-- runs with: 0033

-- What that run has read already may be older than the call, so another one has to begin after it. A row says that this one is
-- not queued yet; however often it is asked for there is one row.
create table sync_again (
  sync_id bigint primary key references sync on delete cascade,
  -- Of who asked last, as in `run`.
  traceparent text
);
