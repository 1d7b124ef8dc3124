-- Which delete tracking a checkpoint was written in, and mass deletions that are allowed once.
-- runs with: 0033

alter table dataset
  -- Drawn when delete tracking opens and when its end is held; null where none is open, or where a service of an earlier
  -- version opened it.
  add column tracking_id uuid,
  -- The records that were read before the tracking opened were not tracked: its end deletes nothing.
  add column tracking_is_partial boolean not null default false,
  -- How many records the held end would have deleted.
  add column held_count bigint,
  -- How many records the next end of the held tracking may delete.
  add column allowed_count bigint;

-- Services of earlier versions open and close delete tracking and do not know its id.
create function forget_tracking_id() returns trigger language plpgsql as $$
begin
  new.tracking_id := null;
  return new;
end;
$$;
create trigger dataset_tracking_id before update of tracked_from on dataset
  for each row
  when (new.tracked_from is distinct from old.tracked_from and new.tracking_id is not distinct from old.tracking_id)
  execute function forget_tracking_id();

-- {version, run, trackings, succeeded}: the run that wrote this version of the checkpoint, the delete trackings that were
-- open then, and, once that run has succeeded, the version of its function. Void where `version` is not the row's.
alter table function_checkpoint add column written jsonb;
