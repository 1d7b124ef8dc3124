alter table integration
  -- {cause, evidence, since, next_step} of what ails the integration itself; says nothing of its connections.
  add column fault jsonb,
  -- How many probes found the fault still there, and when the next may go.
  add column probes integer not null default 0,
  add column probe_at timestamptz,
  -- When the application was last told that the provider throttles all of it.
  add column rate_limited_at timestamptz;
create index integration_probe on integration (probe_at) where probe_at is not null;

alter table connection
  -- {cause, evidence, since, next_step, attempts} while the provider gives no judgement on refreshes.
  add column outage jsonb,
  -- Scopes that the API asked for, which the token has not whatever was granted by our books.
  add column scopes_lacking text[],
  -- When the application was last told that the provider throttles this account.
  add column rate_limited_at timestamptz;
