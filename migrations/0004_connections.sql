create table integration (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  key text not null,
  provider text not null,
  display_name text not null,
  is_test boolean not null default false,
  client_id text,
  -- Sealed with the environment's data key: the client secret and the webhook secret.
  secrets bytea,
  scopes text[],
  integration_config jsonb not null default '{}',
  custom jsonb,
  forward_webhooks boolean not null default true,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint integration_key_unique unique (environment_id, key)
);

create table connection (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  integration_id bigint not null references integration on delete cascade,
  connection_id text not null,
  -- Wrapped by a master key. Null once the connection is deleted: whatever it sealed is lost for good.
  data_key bytea,
  -- Sealed with the data key.
  credentials bytea,
  metadata bytea,
  connection_config bytea,
  -- Counts every change of the credentials; a writer that read another version has lost.
  credentials_version bigint not null default 1,
  account_id text,
  account_email text,
  scopes_requested text[],
  scopes_granted text[],
  access_expires_at timestamptz,
  refresh_expires_at timestamptz,
  status text not null default 'active',
  -- {cause, evidence, since, next_step} of a connection that is not active.
  fault jsonb,
  tags jsonb not null default '{}',
  end_user jsonb,
  webhook_url_override text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  last_fetched_at timestamptz,
  deleted_at timestamptz,
  constraint connection_status check (status in ('active', 'needs_reauth', 'blocked')),
  constraint connection_key_until_deleted check ((data_key is null) = (deleted_at is not null))
);
create unique index connection_id_unique on connection (integration_id, connection_id) where deleted_at is null;
create index connection_newest on connection (environment_id, created_at desc, id desc) where deleted_at is null;
create index connection_account on connection (integration_id, account_id) where deleted_at is null;
