-- Attempts of a run before the last one, the oldest first: [{"attempt", "ended_at", "error": {"code", "message"}}].
alter table run add column earlier jsonb not null default '[]';

-- How many runs of a function have failed lately.
create index run_failed on run (function_id, ended_at) where state = 'failed';
