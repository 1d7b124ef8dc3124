-- The outbox: a row is written in its cause's transaction, without a position. A sequencer gives committed rows
-- their position, so that writers never wait for each other and a visible position is never overtaken.
create table event (
  id uuid primary key,
  position bigint,
  environment_id bigint not null references environment on delete cascade,
  type text not null,
  data jsonb not null,
  created_at timestamptz not null default clock_timestamp(),
  -- The order of those that get their position together: that of writing, whatever the clock does.
  ordinal bigint generated always as identity,
  -- By it a look for those without a position passes over all that were given one: an open snapshot, as of a backup,
  -- keeps their entries in the index.
  written_in xid8 not null default pg_current_xact_id(),
  -- The address of its connection that replaces those of the settings, as it was when the event was written.
  override text,
  constraint event_position_unique unique (position)
);
create index event_without_position on event (written_in, ordinal) where position is null;
create index event_feed on event (environment_id, position);
-- A follower of a rare type reads its events alone, however many others there are.
create index event_feed_of_type on event (environment_id, type, position);

-- The last position whose event was removed by age: whoever stands before it has missed something.
alter table environment add column events_removed_to bigint not null default 0;

-- One row a sequence; whoever holds its lock is the sequencer.
create table sequencer (
  name text primary key,
  last_position bigint not null default 0
);
insert into sequencer (name) values ('event'), ('audit');
