-- Functions: what was deployed, what runs of it for which connection, and each run.

-- The text of a version and what it was written as, brotli: code of the operator's own, plain, and gone with its
-- environment. One row for equal texts.
create table function_bundle (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  -- sha-256 of the code, then of the source.
  digest bytea not null,
  code bytea not null,
  source bytea,
  -- When it was last deployed: what no version names any more is removed an hour later.
  touched_at timestamptz not null,
  constraint function_bundle_digest_unique unique (environment_id, digest)
);

create table function (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  integration_id bigint not null references integration on delete cascade,
  kind text not null,
  name text not null,
  is_enabled boolean not null default true,
  -- Where it comes from: an own folder removes what it no longer holds, and nothing else.
  origin text not null,
  -- The version that runs; null for a moment within the transaction that makes the first.
  version_id bigint,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint function_name_unique unique (integration_id, kind, name),
  constraint function_kind check (kind in ('sync', 'action', 'on_event')),
  constraint function_origin check (origin in ('deploy', 'folder')),
  constraint function_name_form check (name ~ '^[A-Za-z0-9_-]{1,255}$')
);
create index function_environment on function (environment_id, kind, name);

create table function_version (
  id bigint generated always as identity primary key,
  function_id bigint not null references function on delete cascade,
  -- From 1 on, in the order of deploying; never given twice.
  number integer not null,
  -- Of the author, such as 1.2.0.
  label text not null,
  -- Looked at when all is done: an environment that is deleted takes both with it, in no order.
  bundle_id bigint not null references function_bundle deferrable initially deferred,
  definition jsonb not null,
  deployed_at timestamptz not null,
  -- As the audit log names the actor.
  deployed_by text not null,
  constraint function_version_number_unique unique (function_id, number)
);
create index function_version_bundle on function_version (bundle_id);
alter table function add constraint function_version_id_fkey
  foreign key (version_id) references function_version deferrable initially deferred;
create index function_current on function (version_id);

-- A sync for one connection and variant.
create table sync (
  id bigint generated always as identity primary key,
  function_id bigint not null references function on delete cascade,
  connection_id bigint not null references connection on delete cascade,
  variant text not null default 'base',
  state text not null default 'active',
  -- In place of the definition's.
  frequency_s integer,
  -- Null where nothing starts it by itself.
  next_at timestamptz,
  -- {code, message} why its runs are not started; null where they are.
  held jsonb,
  last_started_at timestamptz,
  last_succeeded_at timestamptz,
  last_ended_at timestamptz,
  -- In a row.
  failures integer not null default 0,
  created_at timestamptz not null default now(),
  constraint sync_unique unique (connection_id, function_id, variant),
  constraint sync_state check (state in ('active', 'paused')),
  constraint sync_variant check (variant ~ '^[A-Za-z0-9_-]{1,255}$'),
  constraint sync_frequency check (frequency_s >= 30)
);
create index sync_function on sync (function_id);
create index sync_due on sync (next_at) where state = 'active';

-- Where a function is to go on for a connection, sealed with the connection's key. The version counts its changes.
create table function_checkpoint (
  function_id bigint not null references function on delete cascade,
  connection_id bigint not null references connection on delete cascade,
  variant text not null,
  value bytea not null,
  version bigint not null default 1,
  updated_at timestamptz not null default now(),
  constraint function_checkpoint_pkey primary key (connection_id, function_id, variant)
);
create index function_checkpoint_function on function_checkpoint (function_id);

create table run (
  -- Of version 7: they ascend with time.
  id uuid primary key,
  environment_id bigint not null references environment on delete cascade,
  function_id bigint not null references function on delete cascade,
  version_id bigint not null references function_version on delete cascade,
  connection_id bigint references connection on delete cascade,
  sync_id bigint references sync on delete cascade,
  variant text not null default 'base',
  kind text not null,
  trigger text not null,
  state text not null default 'waiting',
  -- Of a connection's runs the higher one goes first.
  priority smallint not null default 0,
  not_before timestamptz not null default now(),
  queued_at timestamptz not null default now(),
  started_at timestamptz,
  ended_at timestamptz,
  attempt integer not null default 0,
  most_attempts integer not null default 1,
  -- The right to run it: one node at a time, noted in the row, so that no database session is held and a killed node's
  -- right ends by itself.
  owner uuid,
  lease_until timestamptz,
  cancel_requested boolean not null default false,
  -- Sealed with the connection's key.
  input bytea,
  output bytea,
  -- {code, message, payload?}
  error jsonb,
  -- {model: {added, updated, deleted, unchanged}}
  counts jsonb not null default '{}',
  constraint run_trigger check (
    trigger in ('schedule', 'manual', 'deploy', 'webhook', 'connection', 'action', 'resume')
  ),
  constraint run_kind check (kind in ('sync', 'webhook', 'action', 'on_event')),
  constraint run_state check (state in ('waiting', 'running', 'succeeded', 'failed', 'cancelled')),
  constraint run_lease check (
    (owner is null) = (lease_until is null) and (owner is not null) = (state = 'running')
  ),
  -- Makes the owner part of a key: a write of the run that holds its row `for key share` keeps others from taking the
  -- run over, and the renewal of the lease does not wait for that write.
  constraint run_fence unique (id, owner),
  constraint run_ended check ((ended_at is null) = (state in ('waiting', 'running')))
);
-- One at a time for a sync of a connection.
create unique index run_of_sync_once on run (sync_id) where state in ('waiting', 'running') and kind = 'sync';
create index run_waiting on run (connection_id, priority desc, not_before) where state = 'waiting';
create index run_running on run (connection_id) where state = 'running';
create index run_leased on run (lease_until) where state = 'running';
create index run_of_environment on run (environment_id, id desc);
create index run_of_function on run (function_id, id desc);
create index run_of_connection on run (connection_id, id desc);
create index run_of_sync on run (sync_id, id desc);
create index run_of_version on run (version_id);
create index run_ended on run (ended_at) where ended_at is not null;

-- What the code of a run wrote to its log.
create table run_line (
  run_id uuid not null references run on delete cascade,
  position integer not null,
  at timestamptz not null,
  level text not null,
  message text not null,
  constraint run_line_pkey primary key (run_id, position),
  constraint run_line_level check (level in ('debug', 'info', 'warn', 'error'))
);

-- Names that runs of an environment have taken for themselves.
create table function_lock (
  environment_id bigint not null references environment on delete cascade,
  key text not null,
  run_id uuid not null,
  lease_until timestamptz not null,
  constraint function_lock_pkey primary key (environment_id, key)
);
create index function_lock_run on function_lock (run_id);
