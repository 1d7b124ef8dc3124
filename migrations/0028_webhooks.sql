-- What providers send: told to the application, known again, and asked for by push channels.

-- What a webhook held, for the endpoints that are told of it: sealed with its connection's key, or with the environment's
-- where it names no connection of ours. Gone with its event.
create table webhook_body (
  event_id uuid primary key references event on delete cascade,
  environment_id bigint not null references environment on delete cascade,
  integration_id bigint not null references integration on delete cascade,
  connection_id bigint references connection on delete cascade,
  sealed bytea not null,
  received_at timestamptz not null
);
create index webhook_body_of_integration on webhook_body (integration_id, received_at);
create index webhook_body_of_connection on webhook_body (connection_id);
create index webhook_body_of_environment on webhook_body (environment_id);

-- Webhooks that say when they were made, while that could still be believed: the same bytes again do nothing.
create table webhook_seen (
  integration_id bigint not null references integration on delete cascade,
  -- sha-256 of what was sent and of whom it is for.
  digest bytea not null,
  seen_at timestamptz not null,
  constraint webhook_seen_pkey primary key (integration_id, digest)
);
create index webhook_seen_age on webhook_seen (seen_at);

-- Connections whose syncs ask to be told of changes, by a provider that has push channels.
create table watching (
  connection_id bigint primary key references connection on delete cascade,
  -- When it is looked at what has to be watched for it, which its metadata say.
  look_at timestamptz not null
);
create index watching_due on watching (look_at);

-- One thing that is watched for a connection.
create table watch (
  id bigint generated always as identity primary key,
  connection_id bigint not null references watching on delete cascade,
  -- Its ID at the provider; empty: everything of the account.
  target text not null,
  -- When something is to be done for it: a channel asked for, renewed, asked for again. Whoever takes it moves that on.
  next_at timestamptz not null,
  attempts integer not null default 0,
  -- {code, message} why it has no channel, or is not renewed.
  fault jsonb,
  -- A notice came while a run went on: another one is due.
  noticed_at timestamptz,
  constraint watch_unique unique (connection_id, target)
);
create index watch_due on watch (next_at);
create index watch_noticed on watch (noticed_at) where noticed_at is not null;

-- A channel, written before the provider is asked for it: one that a killed node asked for is known, and not believed.
create table channel (
  -- The ID by which the provider knows it.
  id uuid primary key,
  connection_id bigint not null references connection on delete cascade,
  target text not null,
  -- sha-256 of the secret that the provider sends along.
  token_digest bytea not null,
  state text not null,
  -- The provider's ID of what is watched, by which a channel is stopped.
  resource_id text,
  asked_at timestamptz not null,
  -- Until it was answered: the longest that it can last.
  expires_at timestamptz not null,
  -- When it is to be stopped.
  next_at timestamptz,
  constraint channel_state check (state in ('asked', 'open', 'ending')),
  constraint channel_open check (state = 'asked' or resource_id is not null),
  constraint channel_ending check ((state = 'ending') = (next_at is not null))
);
create index channel_of_connection on channel (connection_id, target);
create index channel_ending on channel (next_at) where next_at is not null;
create index channel_expired on channel (expires_at);
-- One at a time is believed for a thing that is watched, and one before it until it is stopped.
create unique index channel_open_once on channel (connection_id, target) where state = 'open';
