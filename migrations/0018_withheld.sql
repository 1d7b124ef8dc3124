alter table connection
  -- {cause, evidence, since, next_step} while the provider does not let the integration's client use this very token, and
  -- until when no refresh is tried for it. A fault of the integration: `status` says nothing of it.
  add column withheld jsonb,
  add column withheld_until timestamptz,
  add constraint connection_withheld_until check ((withheld is null) = (withheld_until is null));
create index connection_withheld on connection (integration_id, withheld_until) where withheld_until is not null;

-- The same of one of these connections, as long as there is one. Beside `fault`, which is that of all of them.
alter table integration add column partial_fault jsonb;
