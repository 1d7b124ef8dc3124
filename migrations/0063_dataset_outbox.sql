-- Audit entries and events of datasets, which wait beside the records.
-- runs with: 0033

-- A transaction about records writes them here, so that it changes the rows of its own dataset alone. The sequencer copies
-- them to `audit` and `event`, and then removes them. Without a foreign key: they outlive their dataset.
create table dataset_outbox (
  dataset_id bigint not null,
  id uuid not null,
  -- The sequence that takes it.
  sequence text not null,
  -- The columns of its row in `audit` or `event`.
  entry jsonb not null,
  written_at timestamptz not null default clock_timestamp(),
  written_in xid8 not null default pg_current_xact_id(),
  ordinal bigint generated always as identity,
  constraint dataset_outbox_pkey primary key (sequence, written_in, ordinal, dataset_id),
  constraint dataset_outbox_sequence check (sequence in ('audit', 'event'))
);

-- The id of an entry in `dataset_outbox`, so that it is copied once. The id of an event is the same in both tables.
alter table audit add column outbox_id uuid;
