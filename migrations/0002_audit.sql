-- Who changed what. Append-only. `position` and `chain` are given to committed rows by one sequencer.
create table audit (
  id bigint generated always as identity primary key,
  position bigint,
  chain bytea,
  environment_id bigint,
  actor text not null,
  action text not null,
  target text not null,
  details jsonb not null default '{}',
  created_at timestamptz not null default clock_timestamp(),
  -- By it a look for entries without a position passes over all that were given one.
  written_in xid8 not null default pg_current_xact_id(),
  constraint audit_position_unique unique (position)
);
create index audit_without_position on audit (written_in, id) where position is null;
