-- The times of creation that imports have replaced. Not with 0075, whose trigger locks the table of connections until its commit.
-- runs with: 0033

-- safe: it locks only the rows that it changes, and takes some seconds for 100,000 connections.
update connection_name
set created_at = connection.created_at
from connection
where connection.id = connection_name.connection_id and connection.created_at <> connection_name.created_at;
