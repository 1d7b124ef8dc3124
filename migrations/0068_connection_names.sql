-- The names by which a search finds connections, apart from `connection`, whose rows each refresh of a token writes again.
-- runs with: 0033

create table connection_name (
  connection_id bigint not null,
  environment_id bigint not null,
  created_at timestamptz not null,
  -- The IDs, names and e-mail addresses of the connection, its account and its end user, in lower case, one a line.
  names text not null,
  constraint connection_name_pkey primary key (connection_id),
  constraint connection_name_connection_id_fkey foreign key (connection_id) references connection (id) on delete cascade
);

create function names_of(connection) returns text language sql stable as $$
  select string_agg(distinct lower(name), chr(10))
  from unnest(array[
    $1.connection_id, $1.account_id, $1.account_email, $1.end_user ->> 'id', $1.end_user ->> 'display_name',
    $1.end_user ->> 'email'
  ]) as name
$$;

create function name_connection() returns trigger language plpgsql as $$
begin
  if new.deleted_at is not null then
    delete from connection_name where connection_id = new.id;
  else
    insert into connection_name (connection_id, environment_id, created_at, names)
    values (new.id, new.environment_id, new.created_at, names_of(new))
    on conflict on constraint connection_name_pkey do update set names = excluded.names;
  end if;
  return null;
end
$$;

create trigger connection_is_named
  after insert on connection
  for each row execute function name_connection();

create trigger connection_is_renamed
  after update of connection_id, account_id, account_email, end_user, deleted_at on connection
  for each row
  when (
    (old.connection_id, old.account_id, old.account_email, old.end_user, old.deleted_at)
    is distinct from (new.connection_id, new.account_id, new.account_email, new.end_user, new.deleted_at)
  )
  execute function name_connection();

-- All parts of three characters. `pg_trgm` is faster, but some servers do not have it. Its cost keeps the planner from calling
-- it for each row of a search.
create function trigrams(names text) returns text[] language sql immutable strict parallel safe cost 5000 as $$
  select array(select substr(names, n, 3) from generate_series(1, length(names) - 2) as n)
$$;
