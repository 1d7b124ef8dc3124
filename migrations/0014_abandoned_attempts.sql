-- A trip that never came back is told of when its session is over: found by session.
create index auth_attempt_session on auth_attempt (session_id);
