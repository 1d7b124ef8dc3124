-- What the dashboard asks for: settings of the connect page, variables, and when a connection was used.

-- How an environment's connect page looks; without a row all is as the defaults of the service say, and so is a null.
create table connect_settings (
  environment_id bigint primary key references environment on delete cascade,
  app_name text,
  -- A data: address of an image.
  logo text,
  theme text,
  light_primary text,
  dark_primary text,
  language text,
  constraint connect_settings_theme check (theme in ('system', 'light', 'dark')),
  constraint connect_settings_light check (light_primary ~ '^#[0-9a-f]{6}$'),
  constraint connect_settings_dark check (dark_primary ~ '^#[0-9a-f]{6}$')
);

-- What an environment's own code is told, sealed with the environment's data key.
create table environment_variable (
  environment_id bigint not null references environment on delete cascade,
  name text not null,
  value bytea not null,
  constraint environment_variable_pkey primary key (environment_id, name)
);

-- Behind by a minute at most; null until the credentials are first used.
alter table connection add column last_used_at timestamptz;
create index connection_last_used on connection (environment_id, last_used_at desc nulls last, id desc)
  where deleted_at is null;
-- Lists by status, and counts of each integration without a look at the rows.
create index connection_status on connection (environment_id, status, created_at desc, id desc)
  include (integration_id)
  where deleted_at is null;
