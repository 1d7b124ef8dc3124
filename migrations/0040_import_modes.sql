-- Of imports: what a run does with what is here, and when the grants were given that it stored.
-- runs with: 0033

-- Whether the run overwrites. One of the other kind does not go on with it.
alter table import add column overwrites boolean not null default false;
-- When the grant was given whose credentials were put there; null where the source does not tell.
alter table imported_connection add column granted_at timestamptz;
-- safe: imports alone write there, and wait.
create index imported_connection_stored on imported_connection (stored_id);
