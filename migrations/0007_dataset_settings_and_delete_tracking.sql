alter table dataset
  -- Fields of a payload, at its top level, that count for nothing when it is compared.
  add column ignore_fields text[] not null default '{}',
  -- An end of delete tracking that would delete more than this share of the live records, and more than this number
  -- of them, is held back.
  add column mass_delete_share double precision not null default 0.5,
  add column mass_delete_number bigint not null default 100,
  -- The position at which the open delete tracking began; null where none is open.
  add column tracked_from bigint,
  -- When the guard held its end back.
  add column held_at timestamptz,
  add constraint dataset_mass_delete check (mass_delete_share between 0 and 1 and mass_delete_number >= 0),
  add constraint dataset_held_is_tracked check (held_at is null or tracked_from is not null);

-- Digest of the names that were left out of `hash`; null where none were.
alter table record add column ignored bytea;

-- What saves named since a delete tracking began and did not move: one row a call, with the positions.
create table tracked (
  id bigint generated always as identity primary key,
  dataset_id bigint not null references dataset on delete cascade,
  seqs bigint[] not null
);
create index tracked_dataset on tracked (dataset_id);
