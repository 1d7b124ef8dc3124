-- Where events are sent, and what became of each.

-- What an environment says about its events; without a row all is as the defaults say.
create table event_settings (
  environment_id bigint primary key references environment on delete cascade,
  on_auth_creation boolean not null default true,
  on_auth_refresh_error boolean not null default true,
  on_sync_completion_always boolean not null default true,
  on_sync_error boolean not null default true,
  on_async_action_completion boolean not null default true,
  -- How long the key before still signs after a rotation.
  signing_key_overlap_hours integer not null default 24,
  constraint event_settings_overlap check (signing_key_overlap_hours between 0 and 720)
);

-- What events are signed with, sealed with the environment's data key.
create table signing_key (
  id uuid primary key,
  environment_id bigint not null references environment on delete cascade,
  secret bytea not null,
  created_at timestamptz not null,
  -- Null for the newest one.
  retires_at timestamptz
);
create unique index signing_key_newest on signing_key (environment_id) where retires_at is null;
create index signing_key_environment on signing_key (environment_id, created_at);

create table endpoint (
  id bigint generated always as identity primary key,
  environment_id bigint not null references environment on delete cascade,
  -- 'events' is made by its owner and gets the envelope; the others are addresses of the settings ('primary',
  -- 'secondary') and of connections ('override').
  kind text not null,
  url text not null,
  description text not null default '',
  -- Exact names, or `connection.*`; none means all.
  types text[] not null default '{}',
  created_at timestamptz not null default now(),
  -- Null while it is enabled.
  disabled_cause text,
  disabled_at timestamptz,
  -- The circuit breaker: failures in a row over all lanes, how often it opened since, and until when it is open. Past
  -- that time one probe at a time goes out.
  failures integer not null default 0,
  failing_since timestamptz,
  openings integer not null default 0,
  open_until timestamptz,
  -- The receiver asked for silence.
  paused_until timestamptz,
  last_success_at timestamptz,
  last_failure_at timestamptz,
  last_failure jsonb,
  -- A deleted one is gone for everybody; its deliveries follow in steps, and then its row.
  deleted_at timestamptz,
  constraint endpoint_kind check (kind in ('events', 'primary', 'secondary', 'override')),
  constraint endpoint_disabled check ((disabled_at is null) = (disabled_cause is null)),
  constraint endpoint_disabled_cause check (disabled_cause in ('operator', 'gone', 'failing'))
);
create index endpoint_environment on endpoint (environment_id, kind, id) where deleted_at is null;
create unique index endpoint_setting on endpoint (environment_id, kind)
  where kind in ('primary', 'secondary') and deleted_at is null;
-- Of the digest, since an address may be longer than an index takes.
create unique index endpoint_override on endpoint (environment_id, md5(url))
  where kind = 'override' and deleted_at is null;
create index endpoint_deleted on endpoint (id) where deleted_at is not null;

-- One event for one endpoint. A lane is what keeps its order: a connection, or all events without one.
create table delivery (
  id bigint generated always as identity primary key,
  environment_id bigint not null,
  endpoint_id bigint not null references endpoint,
  event_id uuid not null references event on delete cascade,
  position bigint not null,
  lane bigint not null,
  status text not null default 'waiting',
  attempts integer not null default 0,
  -- When its time began: the event's, or that of its replay.
  queued_at timestamptz not null,
  last_attempt_at timestamptz,
  last_attempt jsonb,
  settled_at timestamptz,
  constraint delivery_status check (status in ('waiting', 'delivered', 'dead')),
  constraint delivery_settled check ((settled_at is null) = (status = 'waiting')),
  constraint delivery_once unique (event_id, endpoint_id)
);
create index delivery_head on delivery (endpoint_id, lane, position) where status = 'waiting';
create index delivery_waiting_since on delivery (endpoint_id, queued_at) where status = 'waiting';
create index delivery_of_endpoint on delivery (endpoint_id, status, id);
create index delivery_of_environment on delivery (environment_id, status, id);
create index delivery_over on delivery (settled_at) where status = 'delivered';

-- A lane that has something waiting, and the right to send it: one sender at a time, noted in the row, so that no
-- database session is held and a killed node's right ends by itself.
create table delivery_lane (
  endpoint_id bigint not null references endpoint on delete cascade,
  lane bigint not null,
  due_at timestamptz not null,
  failures integer not null default 0,
  owner uuid,
  lease_until timestamptz,
  constraint delivery_lane_pkey primary key (endpoint_id, lane),
  constraint delivery_lane_lease check ((owner is null) = (lease_until is null))
);
create index delivery_lane_due on delivery_lane (endpoint_id, due_at);
create index delivery_lane_leased on delivery_lane (endpoint_id) where owner is not null;
create index delivery_lane_failing on delivery_lane (endpoint_id) where failures > 0;

create index connection_override on connection (environment_id, md5(webhook_url_override))
  where webhook_url_override is not null and deleted_at is null;

-- For a replay by time.
create index event_time on event (environment_id, created_at);
