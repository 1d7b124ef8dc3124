-- The keys that wrapped anything in this database: a start without one of them is refused by name.
create table master_key (
  id text primary key,
  proof bytea not null,
  created_at timestamptz not null default now()
);

create table environment (
  id bigint generated always as identity primary key,
  name text not null,
  data_key bytea not null,
  created_at timestamptz not null default now(),
  constraint environment_name_unique unique (name),
  constraint environment_name_form check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$')
);

create table api_key (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  name text not null,
  -- sha-256 of the key; the key itself is never stored.
  hash bytea not null,
  -- The last four characters, to tell keys apart in a list.
  hint text not null,
  scopes text[] not null,
  created_at timestamptz not null default now(),
  revoked_at timestamptz,
  constraint api_key_hash_unique unique (hash)
);
create index api_key_environment on api_key (environment_id);
