-- Exact counts of operations by minute, hour and day. A batch of operations adds to them in its own transaction.
-- runs with: 0033

-- One row for each kind of operation in each span. `integration`, `target` and `variant` are '' for none. `target` is the
-- ID of an endpoint for a delivery and `kind/name` of the function for a run.
-- A count that changes must not touch an index, so that a page keeps room for the next versions of its rows.
create table operation_count (
  environment_id bigint not null,
  -- 60, 3600 or 86400.
  span_s integer not null,
  begins_at timestamptz not null,
  type text not null,
  status text not null,
  integration text not null,
  target text not null,
  variant text not null,
  count bigint not null,
  -- How many of them took how long: see `server/activity/histogram.ts`. Without trailing zeros.
  histogram integer[] not null,
  primary key (environment_id, span_s, begins_at, type, status, integration, target, variant)
) with (fillfactor = 70);

-- Counts of an environment are complete from then on: before, services wrote operations without counting them. An
-- environment without a row was counted from its beginning.
create table operation_count_start (
  environment_id bigint primary key references environment on delete cascade,
  at timestamptz not null
);
-- safe: a new table.
insert into operation_count_start (environment_id, at)
select id, clock_timestamp()
from environment;
