-- What the connect page of a session waits for, told by whichever node the browser comes back to.

alter table connect_session
  -- {cause, type, evidence, at} of the last trip, where it made no connection; a new trip clears it.
  add column failure jsonb;

-- What official browser clients are told over their socket: written where a trip ends, taken where the socket is.
create table connect_notice (
  -- sha-256 of the ID that the socket was given.
  waiter_hash bytea primary key,
  message jsonb not null,
  created_at timestamptz not null
);
create index connect_notice_age on connect_notice (created_at);
