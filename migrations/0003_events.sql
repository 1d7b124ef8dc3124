-- The outbox: a row is written in its cause's transaction, without a position. A sequencer gives committed rows
-- their position, so that writers never wait for each other and a visible position is never overtaken.
create table event (
  id uuid primary key,
  position bigint,
  environment_id bigint not null references environment on delete cascade,
  type text not null,
  data jsonb not null,
  created_at timestamptz not null default clock_timestamp(),
  constraint event_position_unique unique (position)
);
create index event_without_position on event (created_at) where position is null;
create index event_feed on event (environment_id, position);

-- One row a sequence; whoever holds its lock is the sequencer.
create table sequencer (
  name text primary key,
  last_position bigint not null default 0
);
insert into sequencer (name) values ('event'), ('audit');
