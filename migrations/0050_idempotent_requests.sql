-- Requests with an Idempotency-Key, and their answers for 24 hours.
-- runs with: 0033

create table idempotent_request (
  environment_id bigint not null references environment on delete cascade,
  -- HMAC of caller, method, path and key; and of query, body and further headers. With a key of the environment.
  digest bytea not null,
  fingerprint bytea not null,
  -- Null: the caller is a user.
  key_id bigint references api_key on delete cascade,
  created_at timestamptz not null,
  -- The node that does the work renews the lease. If the lease ends without an answer, the outcome is unknown.
  leased_until timestamptz not null,
  -- Sealed with the environment's data key. Null: there is none yet.
  answer bytea,
  -- True: later repeats get the answer. False: only waiting repeats get it, and the next request does the work again.
  is_final boolean not null default false,
  primary key (environment_id, digest)
);
create index idempotent_request_created_at on idempotent_request (created_at);
create index idempotent_request_key_id on idempotent_request (key_id);

-- A revoked key keeps its row.
create function forget_answers_of_key() returns trigger language plpgsql as $$
begin
  delete from idempotent_request where key_id = new.id;
  return null;
end;
$$;
create trigger api_key_forgets_answers after update of revoked_at on api_key
  for each row
  when (new.revoked_at is not null and old.revoked_at is null)
  execute function forget_answers_of_key();
