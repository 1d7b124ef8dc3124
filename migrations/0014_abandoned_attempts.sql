-- A trip that never came back is told of when its session is over: found by session.
create index auth_attempt_session on auth_attempt (session_id);

alter table auth_attempt
  -- When it came back. What is left with it was cut off in the middle: no state works twice.
  add column taken_at timestamptz;
