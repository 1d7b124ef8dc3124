-- The records of one connection, model and variant. Every write locks this row first.
create table dataset (
  id bigint generated always as identity primary key,
  -- No foreign key: the connection's row may go at once with its integration, these rows go in the background.
  connection bigint not null,
  model text not null,
  variant text not null,
  last_seq bigint not null default 0,
  -- No payload stands at or below this seq. A hint where a scan may start.
  prune_floor bigint not null default 0,
  last_modified_at timestamptz not null default '-infinity',
  -- Live records, pruned ones included.
  records bigint not null default 0,
  -- Tombstones.
  deleted bigint not null default 0,
  -- Records without a payload, live or deleted.
  pruned bigint not null default 0,
  -- Sealed bytes that stand in `payload`.
  payload_bytes bigint not null default 0,
  created_at timestamptz not null default now(),
  constraint dataset_unique unique (connection, model, variant)
);

-- Fixed-width columns first: no padding in between.
create table record (
  dataset_id bigint not null,
  seq bigint not null,
  first_seen_at timestamptz not null,
  last_modified_at timestamptz not null,
  deleted_at timestamptz,
  -- Written only when a pruned record moves; else the receipts tell.
  pruned_at timestamptz,
  -- Sealed bytes of the payload as last written, so that a page can be measured before it is read.
  size integer not null,
  -- HMAC of dataset, id and canonical payload, keyed from the connection's data key.
  hash bytea not null,
  external_id text collate "C" not null,
  constraint record_pkey primary key (dataset_id, external_id),
  constraint record_seq_unique unique (dataset_id, seq)
);

-- A row stands here exactly for the records that are not pruned.
create table payload (
  dataset_id bigint not null,
  seq bigint not null,
  -- AES-256-GCM with the connection's data key; ciphertext does not compress.
  body bytea not null,
  constraint payload_pkey primary key (dataset_id, seq)
);
alter table payload alter column body set storage external;

-- One receipt a prune that pruned something.
create table prune (
  id bigint generated always as identity primary key,
  dataset_id bigint not null references dataset on delete cascade,
  pruned_at timestamptz not null,
  seqs int8multirange not null,
  count bigint not null,
  bytes bigint not null
);
create index prune_dataset on prune (dataset_id, id);
-- Receipts over a range of positions, also where they lie across each other: dataset and position as a plane.
create index prune_place on prune using gist (
  box(point(dataset_id, lower(seqs)), point(dataset_id, upper(seqs)))
);
