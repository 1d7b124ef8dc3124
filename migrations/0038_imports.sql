-- What was moved in from elsewhere, so that an import that was interrupted goes on where it was.
-- runs with: 0033

create table import (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  -- The address of a peer, or the ID of a file.
  source text not null,
  started_at timestamptz not null default now(),
  -- When it last went through to its end.
  ended_at timestamptz,
  constraint import_source_unique unique (environment_id, source)
);

-- What became of each connection of the source. It outlives the connection, so that one that is deleted here later does not
-- come back with the next run.
create table imported_connection (
  import_id bigint not null references import on delete cascade,
  integration text not null,
  connection text not null,
  outcome text not null,
  -- Why it is not here, or not whole: a word, and what to know of it. Never a secret.
  reason text,
  detail text,
  at timestamptz not null default now(),
  constraint imported_connection_pkey primary key (import_id, integration, connection),
  constraint imported_connection_outcome check (
    outcome in ('made', 'overwritten', 'existing', 'dead', 'gone', 'removed', 'skipped', 'failed')
  )
);
create index imported_connection_outcome on imported_connection (import_id, outcome);

-- How far the records of a dataset are.
create table imported_dataset (
  import_id bigint not null references import on delete cascade,
  integration text not null,
  connection text not null,
  model text not null,
  variant text not null,
  -- Of the source: a peer's cursor, or how many records of a file. Null: none was read.
  position text,
  records bigint not null default 0,
  deleted bigint not null default 0,
  -- Those whose payload the source has no more.
  pruned bigint not null default 0,
  is_done boolean not null default false,
  constraint imported_dataset_pkey primary key (import_id, integration, connection, model, variant)
);
