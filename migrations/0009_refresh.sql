alter table connection
  -- The node that refreshes, and until when no other may: as long as its request can be under way. By this database's
  -- clock.
  add column refresh_owner uuid,
  add column refresh_until timestamptz,
  -- Since when the answer to a refresh is owed: it was sent, and the answer was lost on its way. Until one succeeds.
  add column refresh_sent_at timestamptz,
  -- Refreshes in a row that did not succeed, and when the next may be tried.
  add column refresh_failures integer not null default 0,
  add column refresh_not_before timestamptz,
  -- When the refresh token was given or last used.
  add column refreshed_at timestamptz not null default now(),
  -- When a refresh last succeeded that was made because the API refused an access token.
  add column renewed_at timestamptz,
  -- Sealed with the data key: other refresh tokens of the same grant, the newest first.
  add column kept_tokens bytea,
  add constraint connection_refresh_lease check ((refresh_owner is null) = (refresh_until is null));

create index connection_unused on connection (integration_id, refreshed_at)
  where deleted_at is null and status = 'active';
create index connection_blocked on connection (refresh_not_before) where deleted_at is null and status = 'blocked';
