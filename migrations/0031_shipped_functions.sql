-- Functions that ship with the service, and what a function keeps of a connection beside its checkpoint.

alter table function drop constraint function_origin;
alter table function add constraint function_origin check (origin in ('deploy', 'folder', 'shipped'));

-- What a function wrote down for its next run, compressed and sealed with the connection's key. It outlives a reset, as the
-- records do to which it belongs.
create table function_state (
  function_id bigint not null references function on delete cascade,
  connection_id bigint not null references connection on delete cascade,
  variant text not null,
  value bytea not null,
  updated_at timestamptz not null default now(),
  constraint function_state_pkey primary key (connection_id, function_id, variant)
);
-- Random bytes: nothing of them can be packed.
alter table function_state alter column value set storage external;
create index function_state_function on function_state (function_id);
