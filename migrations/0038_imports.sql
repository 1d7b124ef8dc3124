-- What was moved in from elsewhere, so that an import that was interrupted goes on where it was.
-- runs with: 0033

create table import (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  -- The address of a peer, or the ID of a file.
  source text not null,
  -- The run that writes here. One that finds another one's has been taken the place of, and ends.
  run uuid not null default gen_random_uuid(),
  -- When the run began that is to be gone on with, or the last one that came to its end, and when that was.
  started_at timestamptz not null default now(),
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
  -- Whether it was ever here, whatever became of later attempts.
  was_here boolean not null,
  -- Why it is not here, or not whole: a word, and what to know of it. Never a secret.
  reason text,
  detail text,
  -- The connection's row, and the version of the credentials that were put there: where it has others, they are newer.
  stored_id bigint,
  stored_version bigint,
  -- When it was last made or overwritten.
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
  -- The connection's row. It says nothing of another one that is made in its place.
  stored_id bigint not null,
  -- Of the source: a peer's cursor, or how many records of a file. Null: none was read.
  position text,
  records bigint not null default 0,
  deleted bigint not null default 0,
  -- Those whose payload the source has no more.
  pruned bigint not null default 0,
  is_done boolean not null default false,
  -- The dataset's last position when this was noted: where it has another, somebody else has saved there since.
  last_seq bigint not null default 0,
  constraint imported_dataset_pkey primary key (import_id, integration, connection, model, variant)
);
