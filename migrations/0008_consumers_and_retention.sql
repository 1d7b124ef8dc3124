-- Who follows a dataset, and up to where its changes have been taken.
create table consumer (
  id bigint generated always as identity primary key,
  dataset_id bigint not null references dataset on delete cascade,
  name text not null,
  -- 0: nothing was taken yet.
  seq bigint not null,
  -- Where the dataset stood when its reader began; of no matter from there on.
  since bigint not null default 0,
  acknowledged_at timestamptz not null,
  -- When it was told of as stale, since its last acknowledgement.
  stale_at timestamptz,
  constraint consumer_name_unique unique (dataset_id, name)
);

-- What may be let go by age: of an integration, or of an environment for the integrations that have none of their own.
create table retention (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  integration_id bigint references integration on delete cascade,
  prune_after_days integer,
  remove_tombstones_after_days integer,
  wait_for_consumers boolean not null,
  updated_at timestamptz not null default now(),
  constraint retention_place_unique unique nulls not distinct (environment_id, integration_id),
  constraint retention_days check (prune_after_days >= 1 and remove_tombstones_after_days >= 1),
  constraint retention_does_something check (coalesce(prune_after_days, remove_tombstones_after_days) is not null)
);

-- The last tombstone that a policy removed; 0 while there was none. Whoever stands before it, and began before it, has
-- missed a deletion.
alter table dataset add column tombstone_floor bigint not null default 0;

-- Live records have no entry: saving them writes nothing here.
create index record_tombstone on record (dataset_id, seq) where deleted_at is not null;
