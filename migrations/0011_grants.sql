-- Refresh tokens that a provider gave us, a row each and never the token: how many of them live, where a provider lets
-- only so many live for one account and client. Over all environments, as the provider counts. A row goes with its token.
create table issued_token (
  id bigint generated always as identity primary key,
  -- sha-256 of client and account; of what a revocation ends together and account.
  holder bytea not null,
  unit_holder bytea,
  -- Null where no connection came out of it, or none is left.
  connection bigint references connection on delete set null,
  issued_at timestamptz not null,
  -- When the connection got a later one. Until the provider drops it, it takes a place.
  superseded_at timestamptz,
  -- When the application was told that it is the next to be dropped.
  told_at timestamptz
);
create index issued_token_order on issued_token (holder, issued_at, id);
create index issued_token_unit on issued_token (unit_holder) where unit_holder is not null;
create index issued_token_connection on issued_token (connection);

alter table connection
  -- {used, limit} while the account's live tokens come near to what the provider lets live.
  add column token_slots jsonb,
  -- The end (`refresh_expires_at`) that was told.
  add column expiry_told_for timestamptz;
create index connection_token_slots on connection (id) where token_slots is not null and deleted_at is null;
create index connection_refresh_expiry on connection (refresh_expires_at)
  where refresh_expires_at is not null and deleted_at is null;
