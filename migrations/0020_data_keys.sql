-- The keys that seal everything else, each wrapped by a master key, in a table that holds nothing else: a backup without
-- its rows opens nothing.
create table data_key (
  -- Never given twice, not even after a restore: a file of keys names them by it.
  id uuid primary key default gen_random_uuid(),
  master_key text not null references master_key,
  wrapped bytea not null
);
create index data_key_master_key on data_key (master_key, id);

-- A master key that is retired wraps nothing, and never again.
alter table master_key add column retired_at timestamptz;

-- What a key belongs to names it, without a foreign key: a backup without the keys must load.
alter table environment add column key_id uuid;
update environment set key_id = gen_random_uuid();
alter table connection add column key_id uuid;
update connection set key_id = gen_random_uuid() where data_key is not null;
insert into data_key (id, master_key, wrapped)
select id, convert_from(substring(wrapped from 2 for get_byte(wrapped, 0)), 'UTF8'), wrapped
from (
  select key_id as id, data_key as wrapped from environment
  union all
  select key_id, data_key from connection where data_key is not null
) as before;
alter table connection drop constraint connection_key_until_deleted;
alter table environment drop column data_key;
alter table connection drop column data_key;
alter table environment rename column key_id to data_key;
alter table connection rename column key_id to data_key;
alter table environment alter column data_key set not null;
alter table connection
  add constraint connection_key_until_deleted check ((data_key is null) = (deleted_at is not null));

-- Whichever way a connection or an environment goes, a cascade included, its key goes in the same transaction.
create function destroy_data_key() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or new.data_key is distinct from old.data_key then
    delete from data_key where id = old.data_key;
  end if;
  return null;
end $$;
create trigger connection_destroys_data_key
  after delete or update of data_key on connection
  for each row execute function destroy_data_key();
create trigger environment_destroys_data_key
  after delete or update of data_key on environment
  for each row execute function destroy_data_key();

-- When the newest file of keys was written from this database, or given back to it. A file that is younger belongs to a
-- younger state of the data.
create table key_file (made_at timestamptz primary key);
