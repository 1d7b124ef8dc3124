alter table api_key
  -- Null: it does not end by itself.
  add column expires_at timestamptz,
  -- Of the key or of a ticket made with it; behind by a minute at most.
  add column last_used_at timestamptz;

-- The key of the setting TRELLIS_SECRET_KEY, or one that stood there before: a start revokes those that no longer do.
alter table api_key add column is_setting boolean not null default false;
