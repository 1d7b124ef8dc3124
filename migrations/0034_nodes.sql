-- Many nodes: which there are, and what those that run no code of customers ask of those that do.
-- runs with: 0033

-- A row that was not renewed for a while is of a node that was killed, or is cut off.
create table node (
  id uuid primary key,
  -- Where it listens.
  name text not null,
  role text not null,
  version text not null,
  -- The newest migration that it brings.
  migration text not null,
  started_at timestamptz not null default clock_timestamp(),
  seen_at timestamptz not null default clock_timestamp(),
  is_stopping boolean not null default false,
  constraint node_role check (role in ('all', 'api', 'worker'))
);

-- Somebody waits for the answer, so a crash of the server may take all of it with it. Credentials in a request are sealed
-- with the environment's key.
create unlogged table errand (
  id uuid primary key,
  environment_id bigint not null references environment on delete cascade,
  kind text not null,
  request bytea not null,
  -- Renewed by whoever waits: behind it nobody does.
  awaited_until timestamptz not null,
  owner uuid,
  lease_until timestamptz,
  answer bytea,
  constraint errand_lease check ((owner is null) = (lease_until is null))
);
alter table errand alter column request set storage external;
alter table errand alter column answer set storage external;
create index errand_environment on errand (environment_id);
create index errand_open on errand (awaited_until) where owner is null;
