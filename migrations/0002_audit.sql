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
  constraint audit_position_unique unique (position)
);
create index audit_without_position on audit (id) where position is null;
