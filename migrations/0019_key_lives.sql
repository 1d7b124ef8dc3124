alter table api_key
  -- Null: it does not end by itself.
  add column expires_at timestamptz,
  -- Of the key or of a ticket made with it; behind by a minute at most.
  add column last_used_at timestamptz;
