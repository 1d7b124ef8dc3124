-- Grants to be ended at their provider although their connection is gone; a row goes once that is done.
create table revocation (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  -- Without a reference: an integration that is deleted takes the rows of its deleted connections along.
  connection bigint not null,
  -- {connection_id, provider_config_key, provider, test}, for when the secrets cannot be opened; nothing of a person.
  about jsonb not null,
  -- What the provider ends along with the token; null where it ends the token alone.
  unit text,
  account_id text,
  -- Asked for whoever else loses access with it.
  is_forced boolean not null,
  -- Sealed with the environment's data key: the tokens, the OAuth client, and what the last event is to say.
  secrets bytea not null,
  attempts integer not null default 0,
  -- Why the latest attempt failed; never a token.
  evidence jsonb,
  -- A node sends it; another may when this has passed.
  sending_until timestamptz,
  next_at timestamptz not null,
  created_at timestamptz not null
);
create index revocation_due on revocation (next_at);
create index revocation_unit on revocation (unit) where sending_until is not null;
create index revocation_connection on revocation (connection);
-- Deleted together with its grant: a refresh token that is still on its way is revoked when it comes.
alter table connection add column revokes_late_tokens boolean not null default false;

-- Codes that are being exchanged for tokens: while one is, no revocation of its unit is sent.
create table exchange (
  id bigint generated always as identity primary key,
  unit text not null,
  expires_at timestamptz not null
);
create index exchange_unit on exchange (unit);

-- Security events that were acted upon, so that each is once.
create table security_event (
  issuer text not null,
  jti text not null,
  received_at timestamptz not null,
  primary key (issuer, jti)
);
create index security_event_age on security_event (received_at);

-- When the provider gave the grant: what it tells of an earlier day says nothing of it.
alter table connection add column granted_at timestamptz not null default now();

-- Security events name one refresh token by its first 16 characters or by a digest: what is found by them is opened
-- and compared. First halves of SHA-256 of those characters, and of the SHA-512 of the token's SHA-512.
alter table connection
  add column refresh_prefix_digest bytea,
  add column refresh_token_digest bytea,
  -- When to try it, since an event has restored the account that another one had ended.
  add column retry_at timestamptz;
create index connection_refresh_prefix on connection (refresh_prefix_digest) where refresh_prefix_digest is not null;
create index connection_refresh_token on connection (refresh_token_digest) where refresh_token_digest is not null;
create index connection_retry on connection (retry_at) where retry_at is not null;

-- Those of one client, or of a project whose name client IDs begin with, in any environment.
create index integration_client on integration (is_test, client_id collate "C");
