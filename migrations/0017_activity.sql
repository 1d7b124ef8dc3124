-- What was done, to be looked up for some days. One partition a day (`operation_20260131`), made by whoever writes first
-- and dropped whole. Names are those of the time: nothing here refers to a row that may go, and no write waits for one.
create table operation (
  -- A UUID of version 7: its time is created_at, so that an id says in which partition it stands.
  id uuid not null,
  created_at timestamptz not null,
  environment_id bigint not null,
  -- `proxy`, ...
  type text not null,
  status text not null,
  integration text,
  connection text,
  -- Who asked: `key:12`, `service`.
  actor text,
  request_id text,
  duration_ms double precision,
  method text,
  -- With the values of credential-like parameters left out.
  path text,
  http_status int,
  error_code text,
  -- Of a proxied call: requests made for it, those of them that were retries, bytes of the bodies, and where the time
  -- went: until there were credentials, in lines of quotas, and of the last request until a connection was open, from
  -- there to the answer's head, and from there to its end.
  requests int,
  retries int,
  request_bytes bigint,
  answer_bytes bigint,
  credentials_ms double precision,
  quota_ms double precision,
  connect_ms double precision,
  first_byte_ms double precision,
  body_ms double precision,
  -- What is known beyond that, by type.
  details jsonb not null default '{}',
  -- Few and small indexes: a busy node adds thousands of rows a second.
  constraint operation_pkey primary key (environment_id, created_at, id),
  constraint operation_status check (status in ('success', 'failed'))
) partition by range (created_at);
-- Behind these the id stands for the time. Most are proxied calls that succeeded: two of the three are not theirs.
create index operation_of_connection on operation (environment_id, connection, id);
create index operation_of_type on operation (environment_id, type, id) include (created_at) where type <> 'proxy';
create index operation_failed on operation (environment_id, id) include (created_at) where status = 'failed';

-- What an operation had to say, in order.
create table operation_message (
  operation_id uuid not null,
  -- The operation's: its messages go with it.
  created_at timestamptz not null,
  position int not null,
  level text not null,
  message text not null,
  details jsonb not null,
  constraint operation_message_pkey primary key (created_at, operation_id, position),
  constraint operation_message_level check (level in ('info', 'warn', 'error'))
) partition by range (created_at);
