-- The short-lived right of an end user to make or renew one connection.
create table connect_session (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  -- sha-256 of the token.
  token_hash bytea not null,
  -- Integration IDs; null allows every integration of the environment.
  allowed_integrations text[],
  -- Set where the session renews a connection.
  connection bigint references connection on delete cascade,
  -- Sealed with the environment's data key: whom it is for, tags, defaults, overrides.
  settings bytea not null,
  -- sha-256 of the cookie of the browser that began first.
  browser_hash bytea,
  -- Set by the transaction that saves its connection: a session makes one.
  used_at timestamptz,
  -- {integration, missing_scopes} of a used session, for its page.
  outcome jsonb,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  constraint connect_session_token_unique unique (token_hash)
);
create index connect_session_expiry on connect_session (expires_at);

-- One trip to the provider. Taken, never read twice: the callback deletes what it reads.
create table auth_attempt (
  -- sha-256 of the state.
  state_hash bytea primary key,
  environment_id bigint not null references environment on delete cascade,
  integration_id bigint not null references integration on delete cascade,
  session_id bigint not null references connect_session on delete cascade,
  browser_hash bytea not null,
  -- Sealed with the environment's data key: the PKCE verifier and what the connection is to hold.
  secrets bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index auth_attempt_expiry on auth_attempt (expires_at);
