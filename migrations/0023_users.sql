-- People who use the dashboard. The tables sign_in_* are those of better-auth 1.7, in our spelling: it reads and writes
-- them through `users/sign-in.ts`. Who may do what is ours: member, invitation.
create table sign_in_user (
  id text primary key,
  name text not null,
  -- In lower case.
  email text not null,
  -- Only a verified address is linked to an account of the OpenID provider.
  email_verified boolean not null default false,
  image text,
  two_factor_enabled boolean not null default false,
  -- Null: never. Sessions go, and this stays.
  last_signed_in_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint sign_in_user_email_unique unique (email)
);

create table sign_in_session (
  id text primary key,
  user_id text not null references sign_in_user on delete cascade,
  -- What the cookie holds beside a signature; without the signature it opens nothing.
  token text not null,
  expires_at timestamptz not null,
  ip_address text,
  user_agent text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint sign_in_session_token_unique unique (token)
);
create index sign_in_session_user on sign_in_session (user_id);

-- A way to sign in: a password (provider credential), or an account of the OpenID provider, whose tokens are not kept.
create table sign_in_account (
  id text primary key,
  user_id text not null references sign_in_user on delete cascade,
  provider_id text not null,
  account_id text not null,
  access_token text,
  refresh_token text,
  id_token text,
  access_token_expires_at timestamptz,
  refresh_token_expires_at timestamptz,
  scope text,
  -- scrypt, with a salt of its own.
  password text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint sign_in_account_unique unique (provider_id, account_id)
);
create index sign_in_account_user on sign_in_account (user_id);

-- States of sign-ins that are under way, resets of passwords, second factors that are awaited. Identifiers are hashed.
create table sign_in_verification (
  id text primary key,
  identifier text not null,
  value text not null,
  -- Of a link for a new password, which is ours to know: whose, and which owner made it, with whom it ends.
  reset_of text references sign_in_user on delete cascade,
  made_by text references sign_in_user on delete cascade,
  expires_at timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index sign_in_verification_identifier on sign_in_verification (identifier);
create index sign_in_verification_value on sign_in_verification (value);

-- Secret and backup codes are sealed with the key of sign_in_key.
create table sign_in_two_factor (
  id text primary key,
  user_id text not null references sign_in_user on delete cascade,
  secret text not null,
  backup_codes text not null,
  verified boolean not null default true,
  failed_verification_count integer not null default 0,
  locked_until timestamptz
);
create index sign_in_two_factor_user on sign_in_two_factor (user_id);

-- Codes that signed somebody in, for as long as they are shown: each is good once (RFC 6238 section 5.2).
create table sign_in_code (
  user_id text not null references sign_in_user on delete cascade,
  code text not null,
  used_at timestamptz not null,
  constraint sign_in_code_pkey primary key (user_id, code)
);

create table sign_in_rate (
  id text primary key,
  key text not null,
  count integer not null,
  -- In ms since 1970.
  last_request bigint not null,
  constraint sign_in_rate_key_unique unique (key)
);

-- The data key whose subkey signs cookies; the master key ring wraps it like all others.
create table sign_in_key (
  is_only boolean primary key default true,
  data_key uuid not null,
  constraint sign_in_key_only check (is_only)
);
create trigger sign_in_key_destroys_data_key
  after delete or update of data_key on sign_in_key
  for each row execute function destroy_data_key();

-- What a user may do: an owner everything, wherever; others what their role says in an environment.
create table member (
  user_id text not null references sign_in_user on delete cascade,
  environment_id bigint references environment on delete cascade,
  role text not null,
  created_at timestamptz not null default now(),
  constraint member_unique unique nulls not distinct (user_id, environment_id),
  constraint member_role check (role in ('owner', 'developer', 'viewer')),
  constraint member_owner_is_everywhere check ((role = 'owner') = (environment_id is null))
);
create index member_environment on member (environment_id);

-- A link that makes one user. That of the set-up makes the first owner.
create table invitation (
  id bigint generated always as identity primary key,
  -- sha-256 of the token in the link; the token itself is never stored.
  hash bytea not null,
  is_set_up boolean not null default false,
  -- Null: whoever has the link says it.
  email text,
  role text not null,
  -- Of a developer or viewer; those that are gone by then are left out.
  environment_ids bigint[] not null default '{}',
  created_by text references sign_in_user on delete cascade,
  -- How often somebody tried to accept it; a password is hashed each time.
  tries integer not null default 0,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  constraint invitation_hash_unique unique (hash),
  constraint invitation_role check (role in ('owner', 'developer', 'viewer')),
  constraint invitation_set_up_makes_owner check (not is_set_up or role = 'owner')
);
create index invitation_email on invitation (email);

-- Wrong passwords of a user: when one was last told in the audit log, which holds one a minute at most.
create table sign_in_failure (
  user_id text primary key references sign_in_user on delete cascade,
  told_at timestamptz not null
);

-- What better-auth does to these tables is in the audit log by the same statement that does it: it has no transactions.
-- So is what follows from it.
create function audit_sign_in() returns trigger language plpgsql as $$
declare
  whose text;
  what text;
  told jsonb := '{}';
begin
  if tg_table_name = 'sign_in_user' then
    whose := new.id;
    what := case when new.two_factor_enabled then 'user.two_factor_enabled' else 'user.two_factor_disabled' end;
  elsif tg_table_name = 'sign_in_account' then
    whose := new.user_id;
    what := 'user.password_changed';
    -- What was begun with the former one, and other links for a new one.
    delete from sign_in_verification where value = whose;
  elsif tg_table_name = 'sign_in_two_factor' then
    whose := new.user_id;
    what := 'user.code_refused';
  elsif tg_op = 'INSERT' then
    whose := new.user_id;
    what := 'user.signed_in';
    told := jsonb_build_object('address', coalesce(new.ip_address, ''));
    update sign_in_user set last_signed_in_at = new.created_at where id = whose;
  else
    whose := old.user_id;
    what := 'user.session_ended';
    -- Nobody ended one that goes with its user, or because its time was over.
    if old.expires_at <= now() or not exists (select from sign_in_user where id = whose) then
      return null;
    end if;
  end if;
  insert into audit (actor, action, target, details) values ('user:' || whose, what, whose, told);
  return null;
end $$;
create trigger sign_in_session_audited after insert or delete on sign_in_session
  for each row execute function audit_sign_in();
create trigger sign_in_account_audited after update on sign_in_account
  for each row when (new.password is distinct from old.password) execute function audit_sign_in();
create trigger sign_in_user_audited after update on sign_in_user
  for each row when (new.two_factor_enabled is distinct from old.two_factor_enabled) execute function audit_sign_in();
create trigger sign_in_two_factor_audited after update on sign_in_two_factor
  for each row when (new.failed_verification_count > old.failed_verification_count) execute function audit_sign_in();
