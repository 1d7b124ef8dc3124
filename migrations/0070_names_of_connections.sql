-- The names of the connections that exist. Not with 0068, whose trigger locks the table of connections until its commit.
-- runs with: 0033

-- safe: it locks no table, and takes some seconds for 100,000 connections. Its locks of rows keep a connection from being deleted
-- before its name is written.
insert into connection_name (connection_id, environment_id, created_at, names)
select id, environment_id, created_at, names_of(connection)
from connection
where deleted_at is null
for key share
on conflict on constraint connection_name_pkey do nothing;
