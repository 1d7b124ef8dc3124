-- Calls that a key may make.
-- runs with: 0033

alter table api_key
  -- Calls a minute over all nodes, those of its tickets too. Null: as many as the setting TRELLIS_RATE_LIMIT says.
  add column rate_limit integer,
  add constraint api_key_rate_limit check (rate_limit between 1 and 1000000);

-- When a key's bucket of calls is full again, by the database's clock. Nodes add what they took, twice a second. Unlogged: a
-- crash of the server empties it, and so fills the buckets early.
create unlogged table key_rate (
  key_id bigint primary key references api_key on delete cascade,
  full_at timestamptz not null
);
