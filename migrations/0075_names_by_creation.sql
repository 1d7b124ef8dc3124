-- A search finds names by the time of creation, which an import replaces by that at the source.
-- runs with: 0033

create or replace function name_connection() returns trigger language plpgsql as $$
begin
  if new.deleted_at is not null then
    delete from connection_name where connection_id = new.id;
  else
    insert into connection_name (connection_id, environment_id, created_at, names)
    values (new.id, new.environment_id, new.created_at, names_of(new))
    on conflict on constraint connection_name_pkey
    do update set created_at = excluded.created_at, names = excluded.names;
  end if;
  return null;
end
$$;

create or replace trigger connection_is_renamed
  after update of connection_id, account_id, account_email, end_user, created_at, deleted_at on connection
  for each row
  when (
    (old.connection_id, old.account_id, old.account_email, old.end_user, old.created_at, old.deleted_at)
    is distinct from (
      new.connection_id, new.account_id, new.account_email, new.end_user, new.created_at, new.deleted_at
    )
  )
  execute function name_connection();
