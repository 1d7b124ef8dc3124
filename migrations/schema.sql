-- Generated from the migrations by scripts/schema.ts. Read it, do not edit it.

create table api_key (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  name text not null,
  hash bytea not null,
  hint text not null,
  scopes text[] not null,
  created_at timestamp with time zone not null default now(),
  revoked_at timestamp with time zone,
  proxy_rules jsonb not null default '[]'::jsonb,
  expires_at timestamp with time zone,
  last_used_at timestamp with time zone,
  is_setting boolean not null default false,
  rate_limit integer,
  first_key_id bigint,
  constraint api_key_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint api_key_hash_unique UNIQUE (hash),
  constraint api_key_pkey PRIMARY KEY (id),
  constraint api_key_rate_limit CHECK (((rate_limit >= 1) AND (rate_limit <= 1000000)))
);
CREATE INDEX api_key_environment ON public.api_key USING btree (environment_id);
CREATE TRIGGER api_key_forgets_answers AFTER UPDATE OF revoked_at ON public.api_key FOR EACH ROW WHEN (((new.revoked_at IS NOT NULL) AND (old.revoked_at IS NULL))) EXECUTE FUNCTION forget_answers_of_key();

create table audit (
  id bigint generated always as identity not null,
  position bigint,
  chain bytea,
  environment_id bigint,
  actor text not null,
  action text not null,
  target text not null,
  details jsonb not null default '{}'::jsonb,
  created_at timestamp with time zone not null default clock_timestamp(),
  written_in xid8 not null default pg_current_xact_id(),
  outbox_id uuid,
  constraint audit_pkey PRIMARY KEY (id),
  constraint audit_position_unique UNIQUE ("position")
);
CREATE INDEX audit_of_action ON public.audit USING btree (environment_id, action, "position") WHERE ("position" IS NOT NULL);
CREATE INDEX audit_of_actor ON public.audit USING btree (environment_id, actor, "position") WHERE ("position" IS NOT NULL);
CREATE INDEX audit_of_environment ON public.audit USING btree (environment_id, "position") WHERE ("position" IS NOT NULL);
CREATE UNIQUE INDEX audit_of_outbox ON public.audit USING btree (outbox_id) WHERE (outbox_id IS NOT NULL);
CREATE INDEX audit_of_target ON public.audit USING btree (environment_id, target, "position") WHERE ("position" IS NOT NULL);
CREATE INDEX audit_without_position ON public.audit USING btree (written_in, id) WHERE ("position" IS NULL);
CREATE TRIGGER audit_append_only BEFORE DELETE OR UPDATE ON public.audit FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();
CREATE TRIGGER audit_never_emptied BEFORE TRUNCATE ON public.audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

create table auth_attempt (
  state_hash bytea not null,
  environment_id bigint not null,
  integration_id bigint not null,
  session_id bigint not null,
  browser_hash bytea not null,
  secrets bytea not null,
  created_at timestamp with time zone not null default now(),
  expires_at timestamp with time zone not null,
  taken_at timestamp with time zone,
  constraint auth_attempt_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint auth_attempt_integration_id_fkey FOREIGN KEY (integration_id) REFERENCES integration(id) ON DELETE CASCADE,
  constraint auth_attempt_pkey PRIMARY KEY (state_hash),
  constraint auth_attempt_session_id_fkey FOREIGN KEY (session_id) REFERENCES connect_session(id) ON DELETE CASCADE
);
CREATE INDEX auth_attempt_expiry ON public.auth_attempt USING btree (expires_at);
CREATE INDEX auth_attempt_session ON public.auth_attempt USING btree (session_id);

create table channel (
  id uuid not null,
  connection_id bigint not null,
  target text not null,
  token_digest bytea not null,
  state text not null,
  resource_id text,
  asked_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  next_at timestamp with time zone,
  address text,
  secret bytea,
  constraint channel_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES connection(id) ON DELETE CASCADE,
  constraint channel_ending CHECK (((state = 'ending'::text) = (next_at IS NOT NULL))),
  constraint channel_open CHECK (((state = 'asked'::text) OR (resource_id IS NOT NULL))),
  constraint channel_pkey PRIMARY KEY (id),
  constraint channel_state CHECK ((state = ANY (ARRAY['asked'::text, 'open'::text, 'ending'::text])))
);
CREATE INDEX channel_ending ON public.channel USING btree (next_at) WHERE (next_at IS NOT NULL);
CREATE INDEX channel_expired ON public.channel USING btree (expires_at);
CREATE INDEX channel_of_connection ON public.channel USING btree (connection_id, target);
CREATE UNIQUE INDEX channel_open_once ON public.channel USING btree (connection_id, target) WHERE (state = 'open'::text);

create table connect_notice (
  waiter_hash bytea not null,
  message jsonb not null,
  created_at timestamp with time zone not null,
  constraint connect_notice_pkey PRIMARY KEY (waiter_hash)
);
CREATE INDEX connect_notice_age ON public.connect_notice USING btree (created_at);

create table connect_session (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  token_hash bytea not null,
  allowed_integrations text[],
  connection bigint,
  settings bytea not null,
  browser_hash bytea,
  used_at timestamp with time zone,
  outcome jsonb,
  created_at timestamp with time zone not null default now(),
  expires_at timestamp with time zone not null,
  failure jsonb,
  constraint connect_session_connection_fkey FOREIGN KEY (connection) REFERENCES connection(id) ON DELETE CASCADE,
  constraint connect_session_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint connect_session_pkey PRIMARY KEY (id),
  constraint connect_session_token_unique UNIQUE (token_hash)
);
CREATE INDEX connect_session_expiry ON public.connect_session USING btree (expires_at);

create table connect_settings (
  environment_id bigint not null,
  app_name text,
  logo text,
  theme text,
  light_primary text,
  dark_primary text,
  language text,
  font text,
  radius smallint,
  light_background text,
  light_text text,
  dark_background text,
  dark_text text,
  texts jsonb,
  return_schemes text[],
  constraint connect_settings_dark CHECK ((dark_primary ~ '^#[0-9a-f]{6}$'::text)),
  constraint connect_settings_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint connect_settings_light CHECK ((light_primary ~ '^#[0-9a-f]{6}$'::text)),
  constraint connect_settings_pkey PRIMARY KEY (environment_id),
  constraint connect_settings_theme CHECK ((theme = ANY (ARRAY['system'::text, 'light'::text, 'dark'::text])))
);

create table connection (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  integration_id bigint not null,
  connection_id text not null,
  credentials bytea,
  metadata bytea,
  connection_config bytea,
  credentials_version bigint not null default 1,
  account_id text,
  account_email text,
  scopes_requested text[],
  scopes_granted text[],
  access_expires_at timestamp with time zone,
  refresh_expires_at timestamp with time zone,
  status text not null default 'active'::text,
  fault jsonb,
  tags jsonb not null default '{}'::jsonb,
  end_user jsonb,
  webhook_url_override text,
  created_at timestamp with time zone not null default now(),
  updated_at timestamp with time zone not null default now(),
  last_fetched_at timestamp with time zone,
  deleted_at timestamp with time zone,
  refresh_owner uuid,
  refresh_until timestamp with time zone,
  refresh_sent_at timestamp with time zone,
  refresh_failures integer not null default 0,
  refresh_not_before timestamp with time zone,
  refreshed_at timestamp with time zone not null default now(),
  renewed_at timestamp with time zone,
  kept_tokens bytea,
  outage jsonb,
  scopes_lacking text[],
  rate_limited_at timestamp with time zone,
  token_slots jsonb,
  expiry_told_for timestamp with time zone,
  revokes_late_tokens boolean not null default false,
  granted_at timestamp with time zone not null default now(),
  refresh_prefix_digest bytea,
  refresh_token_digest bytea,
  retry_at timestamp with time zone,
  withheld jsonb,
  withheld_until timestamp with time zone,
  data_key uuid,
  last_used_at timestamp with time zone,
  has_own_client boolean not null default false,
  own_client_id text,
  is_unverified boolean not null default false,
  lacks_scopes boolean not null default false,
  constraint connection_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint connection_integration_id_fkey FOREIGN KEY (integration_id) REFERENCES integration(id) ON DELETE CASCADE,
  constraint connection_key_until_deleted CHECK (((data_key IS NULL) = (deleted_at IS NOT NULL))),
  constraint connection_pkey PRIMARY KEY (id),
  constraint connection_refresh_lease CHECK (((refresh_owner IS NULL) = (refresh_until IS NULL))),
  constraint connection_status CHECK ((status = ANY (ARRAY['active'::text, 'needs_reauth'::text, 'blocked'::text]))),
  constraint connection_withheld_until CHECK (((withheld IS NULL) = (withheld_until IS NULL)))
);
CREATE INDEX connection_account ON public.connection USING btree (integration_id, account_id) WHERE (deleted_at IS NULL);
CREATE INDEX connection_account_email ON public.connection USING btree (environment_id, lower(account_email)) WHERE ((account_email IS NOT NULL) AND (deleted_at IS NULL));
CREATE INDEX connection_blocked ON public.connection USING btree (refresh_not_before) WHERE ((deleted_at IS NULL) AND (status = 'blocked'::text));
CREATE INDEX connection_by_use ON public.connection USING btree (environment_id, last_used_at DESC NULLS LAST, id DESC) INCLUDE (integration_id, status) WHERE (deleted_at IS NULL);
CREATE INDEX connection_deleted ON public.connection USING btree (deleted_at, id) WHERE (deleted_at IS NOT NULL);
CREATE INDEX connection_end_user ON public.connection USING btree (environment_id, ((end_user ->> 'id'::text))) WHERE (((end_user ->> 'id'::text) IS NOT NULL) AND (deleted_at IS NULL));
CREATE INDEX connection_end_user_email ON public.connection USING btree (environment_id, lower((end_user ->> 'email'::text))) WHERE (((end_user ->> 'email'::text) IS NOT NULL) AND (deleted_at IS NULL));
CREATE UNIQUE INDEX connection_id_unique ON public.connection USING btree (integration_id, connection_id) WHERE (deleted_at IS NULL);
CREATE INDEX connection_newest ON public.connection USING btree (environment_id, created_at DESC, id DESC) WHERE (deleted_at IS NULL);
CREATE INDEX connection_of_integration ON public.connection USING btree (integration_id, created_at DESC, id DESC) INCLUDE (environment_id, status) WHERE (deleted_at IS NULL);
CREATE INDEX connection_of_note ON public.connection USING btree (environment_id, created_at, id) WHERE ((is_unverified OR lacks_scopes OR (outage IS NOT NULL) OR (withheld IS NOT NULL)) AND (status = 'active'::text) AND (deleted_at IS NULL));
CREATE INDEX connection_organization ON public.connection USING btree (environment_id, (((end_user -> 'organization'::text) ->> 'id'::text))) WHERE ((((end_user -> 'organization'::text) ->> 'id'::text) IS NOT NULL) AND (deleted_at IS NULL));
CREATE INDEX connection_override ON public.connection USING btree (environment_id, md5(webhook_url_override)) WHERE ((webhook_url_override IS NOT NULL) AND (deleted_at IS NULL));
CREATE INDEX connection_own_client ON public.connection USING btree (integration_id) WHERE (has_own_client AND (deleted_at IS NULL));
CREATE INDEX connection_refresh_expiry ON public.connection USING btree (refresh_expires_at) WHERE ((refresh_expires_at IS NOT NULL) AND (deleted_at IS NULL));
CREATE INDEX connection_refresh_prefix ON public.connection USING btree (refresh_prefix_digest) WHERE (refresh_prefix_digest IS NOT NULL);
CREATE INDEX connection_refresh_token ON public.connection USING btree (refresh_token_digest) WHERE (refresh_token_digest IS NOT NULL);
CREATE INDEX connection_retry ON public.connection USING btree (retry_at) WHERE (retry_at IS NOT NULL);
CREATE INDEX connection_status ON public.connection USING btree (environment_id, status, created_at DESC, id DESC) INCLUDE (integration_id) WHERE (deleted_at IS NULL);
CREATE INDEX connection_tags ON public.connection USING gin (tags jsonb_path_ops) WITH (fastupdate=off) WHERE ((tags <> '{}'::jsonb) AND (deleted_at IS NULL));
CREATE INDEX connection_token_slots ON public.connection USING btree (id) WHERE ((token_slots IS NOT NULL) AND (deleted_at IS NULL));
CREATE INDEX connection_unused ON public.connection USING btree (integration_id, refreshed_at) WHERE ((deleted_at IS NULL) AND (status = 'active'::text));
CREATE INDEX connection_withheld ON public.connection USING btree (integration_id, withheld_until) WHERE (withheld_until IS NOT NULL);
CREATE TRIGGER connection_destroys_data_key AFTER DELETE OR UPDATE OF data_key ON public.connection FOR EACH ROW EXECUTE FUNCTION destroy_data_key();
CREATE TRIGGER connection_is_named AFTER INSERT ON public.connection FOR EACH ROW EXECUTE FUNCTION name_connection();
CREATE TRIGGER connection_is_renamed AFTER UPDATE OF connection_id, account_id, account_email, end_user, created_at, deleted_at ON public.connection FOR EACH ROW WHEN (((((((old.connection_id IS DISTINCT FROM new.connection_id) OR (old.account_id IS DISTINCT FROM new.account_id)) OR (old.account_email IS DISTINCT FROM new.account_email)) OR (old.end_user IS DISTINCT FROM new.end_user)) OR (old.created_at IS DISTINCT FROM new.created_at)) OR (old.deleted_at IS DISTINCT FROM new.deleted_at))) EXECUTE FUNCTION name_connection();

create table connection_name (
  connection_id bigint not null,
  environment_id bigint not null,
  created_at timestamp with time zone not null,
  names text not null,
  constraint connection_name_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES connection(id) ON DELETE CASCADE,
  constraint connection_name_pkey PRIMARY KEY (connection_id)
);
CREATE INDEX connection_name_newest ON public.connection_name USING btree (environment_id, created_at DESC, connection_id DESC);
CREATE INDEX connection_name_trigrams ON public.connection_name USING gin (trigrams(names)) WITH (gin_pending_list_limit='512');

create table consumer (
  id bigint generated always as identity not null,
  dataset_id bigint not null,
  name text not null,
  seq bigint not null,
  since bigint not null default 0,
  acknowledged_at timestamp with time zone not null,
  stale_at timestamp with time zone,
  owner_key_id bigint,
  held_seq bigint,
  held_since timestamp with time zone,
  silent_from timestamp with time zone,
  constraint consumer_dataset_id_fkey FOREIGN KEY (dataset_id) REFERENCES dataset(id) ON DELETE CASCADE,
  constraint consumer_name_unique UNIQUE (dataset_id, name),
  constraint consumer_pkey PRIMARY KEY (id)
);
CREATE INDEX consumer_silent ON public.consumer USING btree ((
CASE
    WHEN (stale_at IS NULL) THEN GREATEST(acknowledged_at, silent_from)
    ELSE NULL::timestamp with time zone
END));

create table data_key (
  id uuid not null default gen_random_uuid(),
  master_key text not null,
  wrapped bytea not null,
  constraint data_key_master_key_fkey FOREIGN KEY (master_key) REFERENCES master_key(id),
  constraint data_key_pkey PRIMARY KEY (id)
);
CREATE INDEX data_key_master_key ON public.data_key USING btree (master_key, id);

create table dataset (
  id bigint generated always as identity not null,
  connection bigint not null,
  model text not null,
  variant text not null,
  last_seq bigint not null default 0,
  prune_floor bigint not null default 0,
  last_modified_at timestamp with time zone not null default '-infinity'::timestamp with time zone,
  records bigint not null default 0,
  deleted bigint not null default 0,
  pruned bigint not null default 0,
  payload_bytes bigint not null default 0,
  created_at timestamp with time zone not null default now(),
  ignore_fields text[] not null default '{}'::text[],
  mass_delete_share double precision not null default 0.5,
  mass_delete_number bigint not null default 100,
  tracked_from bigint,
  held_at timestamp with time zone,
  tombstone_floor bigint not null default 0,
  keep_previous boolean not null default false,
  emptied_seq bigint not null default 0,
  tracking_id uuid,
  tracking_is_partial boolean not null default false,
  held_count bigint,
  allowed_count bigint,
  has_leftovers boolean not null default false,
  closed boolean not null default false,
  constraint dataset_held_is_tracked CHECK (((held_at IS NULL) OR (tracked_from IS NOT NULL))),
  constraint dataset_mass_delete CHECK ((((mass_delete_share >= (0)::double precision) AND (mass_delete_share <= (1)::double precision)) AND (mass_delete_number >= 0))),
  constraint dataset_pkey PRIMARY KEY (id),
  constraint dataset_unique UNIQUE (connection, model, variant)
);
CREATE INDEX dataset_closed ON public.dataset USING btree (id) WHERE closed;
CREATE INDEX dataset_leftovers ON public.dataset USING btree (id) WHERE has_leftovers;
CREATE TRIGGER dataset_tracking_id BEFORE UPDATE OF tracked_from ON public.dataset FOR EACH ROW WHEN (((new.tracked_from IS DISTINCT FROM old.tracked_from) AND (NOT (new.tracking_id IS DISTINCT FROM old.tracking_id)))) EXECUTE FUNCTION forget_tracking_id();

create table dataset_outbox (
  dataset_id bigint not null,
  id uuid not null,
  sequence text not null,
  entry jsonb not null,
  written_at timestamp with time zone not null default clock_timestamp(),
  written_in xid8 not null default pg_current_xact_id(),
  ordinal bigint generated always as identity not null,
  constraint dataset_outbox_pkey PRIMARY KEY (sequence, written_in, ordinal, dataset_id),
  constraint dataset_outbox_sequence CHECK ((sequence = ANY (ARRAY['audit'::text, 'event'::text])))
);

create table delivery (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  endpoint_id bigint not null,
  event_id uuid not null,
  position bigint not null,
  lane bigint not null,
  status text not null default 'waiting'::text,
  attempts integer not null default 0,
  queued_at timestamp with time zone not null,
  last_attempt_at timestamp with time zone,
  last_attempt jsonb,
  settled_at timestamp with time zone,
  constraint delivery_endpoint_id_fkey FOREIGN KEY (endpoint_id) REFERENCES endpoint(id),
  constraint delivery_event_id_fkey FOREIGN KEY (event_id) REFERENCES event(id) ON DELETE CASCADE,
  constraint delivery_once UNIQUE (event_id, endpoint_id),
  constraint delivery_pkey PRIMARY KEY (id),
  constraint delivery_settled CHECK (((settled_at IS NULL) = (status = 'waiting'::text))),
  constraint delivery_status CHECK ((status = ANY (ARRAY['waiting'::text, 'delivered'::text, 'dead'::text])))
);
CREATE INDEX delivery_head ON public.delivery USING btree (endpoint_id, lane, "position") WHERE (status = 'waiting'::text);
CREATE INDEX delivery_of_endpoint ON public.delivery USING btree (endpoint_id, status, id);
CREATE INDEX delivery_of_environment ON public.delivery USING btree (environment_id, status, id);
CREATE INDEX delivery_over ON public.delivery USING btree (settled_at) WHERE (status = 'delivered'::text);
CREATE INDEX delivery_waiting_since ON public.delivery USING btree (endpoint_id, queued_at) WHERE (status = 'waiting'::text);

create table delivery_lane (
  endpoint_id bigint not null,
  lane bigint not null,
  due_at timestamp with time zone not null,
  failures integer not null default 0,
  owner uuid,
  lease_until timestamp with time zone,
  constraint delivery_lane_endpoint_id_fkey FOREIGN KEY (endpoint_id) REFERENCES endpoint(id) ON DELETE CASCADE,
  constraint delivery_lane_lease CHECK (((owner IS NULL) = (lease_until IS NULL))),
  constraint delivery_lane_pkey PRIMARY KEY (endpoint_id, lane)
);
CREATE INDEX delivery_lane_due ON public.delivery_lane USING btree (endpoint_id, due_at);
CREATE INDEX delivery_lane_failing ON public.delivery_lane USING btree (endpoint_id) WHERE (failures > 0);
CREATE INDEX delivery_lane_leased ON public.delivery_lane USING btree (endpoint_id) WHERE (owner IS NOT NULL);

create table endpoint (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  kind text not null,
  url text not null,
  description text not null default ''::text,
  types text[] not null default '{}'::text[],
  created_at timestamp with time zone not null default now(),
  disabled_cause text,
  disabled_at timestamp with time zone,
  failures integer not null default 0,
  failing_since timestamp with time zone,
  openings integer not null default 0,
  open_until timestamp with time zone,
  paused_until timestamp with time zone,
  last_success_at timestamp with time zone,
  last_failure_at timestamp with time zone,
  last_failure jsonb,
  deleted_at timestamp with time zone,
  format text not null default 'standard'::text,
  constraint endpoint_disabled CHECK (((disabled_at IS NULL) = (disabled_cause IS NULL))),
  constraint endpoint_disabled_cause CHECK ((disabled_cause = ANY (ARRAY['operator'::text, 'gone'::text, 'failing'::text]))),
  constraint endpoint_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint endpoint_format CHECK ((format = ANY (ARRAY['standard'::text, 'slack'::text, 'email'::text]))),
  constraint endpoint_kind CHECK ((kind = ANY (ARRAY['events'::text, 'primary'::text, 'secondary'::text, 'override'::text]))),
  constraint endpoint_pkey PRIMARY KEY (id)
);
CREATE INDEX endpoint_deleted ON public.endpoint USING btree (id) WHERE (deleted_at IS NOT NULL);
CREATE INDEX endpoint_environment ON public.endpoint USING btree (environment_id, kind, id) WHERE (deleted_at IS NULL);
CREATE UNIQUE INDEX endpoint_override ON public.endpoint USING btree (environment_id, md5(url)) WHERE ((kind = 'override'::text) AND (deleted_at IS NULL));
CREATE UNIQUE INDEX endpoint_setting ON public.endpoint USING btree (environment_id, kind) WHERE ((kind = ANY (ARRAY['primary'::text, 'secondary'::text])) AND (deleted_at IS NULL));

create table environment (
  id bigint generated always as identity not null,
  name text not null,
  created_at timestamp with time zone not null default now(),
  events_removed_to bigint not null default 0,
  data_key uuid not null,
  constraint environment_name_form CHECK ((name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text)),
  constraint environment_name_unique UNIQUE (name),
  constraint environment_pkey PRIMARY KEY (id)
);
CREATE TRIGGER environment_destroys_data_key AFTER DELETE OR UPDATE OF data_key ON public.environment FOR EACH ROW EXECUTE FUNCTION destroy_data_key();

create table environment_variable (
  environment_id bigint not null,
  name text not null,
  value bytea not null,
  constraint environment_variable_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint environment_variable_pkey PRIMARY KEY (environment_id, name)
);

create table errand (
  id uuid not null,
  environment_id bigint not null,
  kind text not null,
  request bytea not null,
  awaited_until timestamp with time zone not null,
  owner uuid,
  lease_until timestamp with time zone,
  answer bytea,
  traceparent text,
  constraint errand_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint errand_lease CHECK (((owner IS NULL) = (lease_until IS NULL))),
  constraint errand_pkey PRIMARY KEY (id)
);
CREATE INDEX errand_environment ON public.errand USING btree (environment_id);
CREATE INDEX errand_open ON public.errand USING btree (awaited_until) WHERE (owner IS NULL);

create table event (
  id uuid not null,
  position bigint,
  environment_id bigint not null,
  type text not null,
  data jsonb not null,
  created_at timestamp with time zone not null default clock_timestamp(),
  ordinal bigint generated always as identity not null,
  written_in xid8 not null default pg_current_xact_id(),
  override text,
  constraint event_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint event_pkey PRIMARY KEY (id),
  constraint event_position_unique UNIQUE ("position")
);
CREATE INDEX event_feed ON public.event USING btree (environment_id, "position");
CREATE INDEX event_feed_of_type ON public.event USING btree (environment_id, type, "position");
CREATE INDEX event_of_connection ON public.event USING btree (environment_id, ((data ->> 'connection_id'::text)), "position");
CREATE INDEX event_time ON public.event USING btree (environment_id, created_at);
CREATE INDEX event_without_position ON public.event USING btree (written_in, ordinal) WHERE ("position" IS NULL);

create table event_settings (
  environment_id bigint not null,
  on_auth_creation boolean not null default true,
  on_auth_refresh_error boolean not null default true,
  on_sync_completion_always boolean not null default true,
  on_sync_error boolean not null default true,
  on_async_action_completion boolean not null default true,
  signing_key_overlap_hours integer not null default 24,
  constraint event_settings_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint event_settings_overlap CHECK (((signing_key_overlap_hours >= 0) AND (signing_key_overlap_hours <= 720))),
  constraint event_settings_pkey PRIMARY KEY (environment_id)
);

create table exchange (
  id bigint generated always as identity not null,
  unit text not null,
  expires_at timestamp with time zone not null,
  constraint exchange_pkey PRIMARY KEY (id)
);
CREATE INDEX exchange_unit ON public.exchange USING btree (unit);

create table function (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  integration_id bigint not null,
  kind text not null,
  name text not null,
  is_enabled boolean not null default true,
  origin text not null,
  version_id bigint,
  created_at timestamp with time zone not null default now(),
  updated_at timestamp with time zone not null default now(),
  constraint function_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint function_integration_id_fkey FOREIGN KEY (integration_id) REFERENCES integration(id) ON DELETE CASCADE,
  constraint function_kind CHECK ((kind = ANY (ARRAY['sync'::text, 'action'::text, 'on_event'::text]))),
  constraint function_name_form CHECK ((name ~ '^[A-Za-z0-9_-]{1,255}$'::text)),
  constraint function_name_unique UNIQUE (integration_id, kind, name),
  constraint function_origin CHECK ((origin = ANY (ARRAY['deploy'::text, 'folder'::text, 'shipped'::text]))),
  constraint function_pkey PRIMARY KEY (id),
  constraint function_version_id_fkey FOREIGN KEY (version_id) REFERENCES function_version(id) DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX function_current ON public.function USING btree (version_id);
CREATE INDEX function_environment ON public.function USING btree (environment_id, kind, name);

create table function_bundle (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  digest bytea not null,
  code bytea not null,
  source bytea,
  touched_at timestamp with time zone not null,
  constraint function_bundle_digest_unique UNIQUE (environment_id, digest),
  constraint function_bundle_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint function_bundle_pkey PRIMARY KEY (id)
);

create table function_checkpoint (
  function_id bigint not null,
  connection_id bigint not null,
  variant text not null,
  value bytea not null,
  version bigint not null default 1,
  updated_at timestamp with time zone not null default now(),
  written jsonb,
  constraint function_checkpoint_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES connection(id) ON DELETE CASCADE,
  constraint function_checkpoint_function_id_fkey FOREIGN KEY (function_id) REFERENCES function(id) ON DELETE CASCADE,
  constraint function_checkpoint_pkey PRIMARY KEY (connection_id, function_id, variant)
);
CREATE INDEX function_checkpoint_function ON public.function_checkpoint USING btree (function_id);

create table function_lock (
  environment_id bigint not null,
  key text not null,
  run_id uuid not null,
  lease_until timestamp with time zone not null,
  constraint function_lock_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint function_lock_pkey PRIMARY KEY (environment_id, key)
);
CREATE INDEX function_lock_run ON public.function_lock USING btree (run_id);

create table function_state (
  function_id bigint not null,
  connection_id bigint not null,
  variant text not null,
  value bytea not null,
  updated_at timestamp with time zone not null default now(),
  constraint function_state_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES connection(id) ON DELETE CASCADE,
  constraint function_state_function_id_fkey FOREIGN KEY (function_id) REFERENCES function(id) ON DELETE CASCADE,
  constraint function_state_pkey PRIMARY KEY (connection_id, function_id, variant)
);
CREATE INDEX function_state_function ON public.function_state USING btree (function_id);

create table function_version (
  id bigint generated always as identity not null,
  function_id bigint not null,
  number integer not null,
  label text not null,
  bundle_id bigint not null,
  definition jsonb not null,
  deployed_at timestamp with time zone not null,
  deployed_by text not null,
  constraint function_version_bundle_id_fkey FOREIGN KEY (bundle_id) REFERENCES function_bundle(id) DEFERRABLE INITIALLY DEFERRED,
  constraint function_version_function_id_fkey FOREIGN KEY (function_id) REFERENCES function(id) ON DELETE CASCADE,
  constraint function_version_number_unique UNIQUE (function_id, number),
  constraint function_version_pkey PRIMARY KEY (id)
);
CREATE INDEX function_version_bundle ON public.function_version USING btree (bundle_id);

create table idempotent_request (
  environment_id bigint not null,
  digest bytea not null,
  fingerprint bytea not null,
  key_id bigint,
  created_at timestamp with time zone not null,
  leased_until timestamp with time zone not null,
  answer bytea,
  is_final boolean not null default false,
  constraint idempotent_request_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint idempotent_request_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_key(id) ON DELETE CASCADE,
  constraint idempotent_request_pkey PRIMARY KEY (environment_id, digest)
);
CREATE INDEX idempotent_request_created_at ON public.idempotent_request USING btree (created_at);
CREATE INDEX idempotent_request_key_id ON public.idempotent_request USING btree (key_id);

create table import (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  source text not null,
  run uuid not null default gen_random_uuid(),
  started_at timestamp with time zone not null default now(),
  ended_at timestamp with time zone,
  overwrites boolean not null default false,
  constraint import_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint import_pkey PRIMARY KEY (id),
  constraint import_source_unique UNIQUE (environment_id, source)
);

create table imported_connection (
  import_id bigint not null,
  integration text not null,
  connection text not null,
  outcome text not null,
  was_here boolean not null,
  reason text,
  detail text,
  stored_id bigint,
  stored_version bigint,
  at timestamp with time zone not null default now(),
  granted_at timestamp with time zone,
  constraint imported_connection_import_id_fkey FOREIGN KEY (import_id) REFERENCES import(id) ON DELETE CASCADE,
  constraint imported_connection_outcome CHECK ((outcome = ANY (ARRAY['made'::text, 'overwritten'::text, 'existing'::text, 'dead'::text, 'gone'::text, 'removed'::text, 'skipped'::text, 'failed'::text]))),
  constraint imported_connection_pkey PRIMARY KEY (import_id, integration, connection)
);
CREATE INDEX imported_connection_outcome ON public.imported_connection USING btree (import_id, outcome);
CREATE INDEX imported_connection_stored ON public.imported_connection USING btree (stored_id);

create table imported_dataset (
  import_id bigint not null,
  integration text not null,
  connection text not null,
  model text not null,
  variant text not null,
  stored_id bigint not null,
  position text,
  records bigint not null default 0,
  deleted bigint not null default 0,
  pruned bigint not null default 0,
  is_done boolean not null default false,
  last_seq bigint not null default 0,
  constraint imported_dataset_import_id_fkey FOREIGN KEY (import_id) REFERENCES import(id) ON DELETE CASCADE,
  constraint imported_dataset_pkey PRIMARY KEY (import_id, integration, connection, model, variant)
);

create table integration (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  key text not null,
  provider text not null,
  display_name text not null,
  is_test boolean not null default false,
  client_id text,
  secrets bytea,
  scopes text[],
  integration_config jsonb not null default '{}'::jsonb,
  custom jsonb,
  forward_webhooks boolean not null default true,
  created_at timestamp with time zone not null default now(),
  updated_at timestamp with time zone not null default now(),
  fault jsonb,
  probes integer not null default 0,
  probe_at timestamp with time zone,
  rate_limited_at timestamp with time zone,
  proxy_rules jsonb not null default '[]'::jsonb,
  partial_fault jsonb,
  reported_sunsets text[] not null default '{}'::text[],
  constraint integration_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint integration_key_unique UNIQUE (environment_id, key),
  constraint integration_pkey PRIMARY KEY (id)
);
CREATE INDEX integration_client ON public.integration USING btree (is_test, client_id COLLATE "C");
CREATE INDEX integration_probe ON public.integration USING btree (probe_at) WHERE (probe_at IS NOT NULL);

create table invitation (
  id bigint generated always as identity not null,
  hash bytea not null,
  is_set_up boolean not null default false,
  email text,
  role text not null,
  environment_ids bigint[] not null default '{}'::bigint[],
  created_by text,
  tries integer not null default 0,
  created_at timestamp with time zone not null default now(),
  expires_at timestamp with time zone not null,
  constraint invitation_created_by_fkey FOREIGN KEY (created_by) REFERENCES sign_in_user(id) ON DELETE CASCADE,
  constraint invitation_hash_unique UNIQUE (hash),
  constraint invitation_pkey PRIMARY KEY (id),
  constraint invitation_role CHECK ((role = ANY (ARRAY['owner'::text, 'developer'::text, 'viewer'::text]))),
  constraint invitation_set_up_makes_owner CHECK (((NOT is_set_up) OR (role = 'owner'::text)))
);
CREATE INDEX invitation_email ON public.invitation USING btree (email);

create table issued_token (
  id bigint generated always as identity not null,
  holder bytea not null,
  unit_holder bytea,
  connection bigint,
  issued_at timestamp with time zone not null,
  superseded_at timestamp with time zone,
  told_at timestamp with time zone,
  constraint issued_token_connection_fkey FOREIGN KEY (connection) REFERENCES connection(id) ON DELETE SET NULL,
  constraint issued_token_pkey PRIMARY KEY (id)
);
CREATE INDEX issued_token_connection ON public.issued_token USING btree (connection);
CREATE INDEX issued_token_order ON public.issued_token USING btree (holder, issued_at, id);
CREATE INDEX issued_token_unit ON public.issued_token USING btree (unit_holder) WHERE (unit_holder IS NOT NULL);

create table key_file (
  made_at timestamp with time zone not null,
  constraint key_file_pkey PRIMARY KEY (made_at)
);

create table key_rate (
  key_id bigint not null,
  full_at timestamp with time zone not null,
  constraint key_rate_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_key(id) ON DELETE CASCADE,
  constraint key_rate_pkey PRIMARY KEY (key_id)
);

create table master_key (
  id text not null,
  proof bytea not null,
  created_at timestamp with time zone not null default now(),
  retired_at timestamp with time zone,
  constraint master_key_pkey PRIMARY KEY (id)
);

create table member (
  user_id text not null,
  environment_id bigint,
  role text not null,
  created_at timestamp with time zone not null default now(),
  constraint member_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint member_owner_is_everywhere CHECK (((role = 'owner'::text) = (environment_id IS NULL))),
  constraint member_role CHECK ((role = ANY (ARRAY['owner'::text, 'developer'::text, 'viewer'::text]))),
  constraint member_unique UNIQUE NULLS NOT DISTINCT (user_id, environment_id),
  constraint member_user_id_fkey FOREIGN KEY (user_id) REFERENCES sign_in_user(id) ON DELETE CASCADE
);
CREATE INDEX member_environment ON public.member USING btree (environment_id);

create table migration (
  name text not null,
  applied_at timestamp with time zone not null default now(),
  runs_with integer,
  constraint migration_pkey PRIMARY KEY (name)
);

create table node (
  id uuid not null,
  name text not null,
  role text not null,
  version text not null,
  migration text not null,
  started_at timestamp with time zone not null default clock_timestamp(),
  seen_at timestamp with time zone not null default clock_timestamp(),
  is_stopping boolean not null default false,
  reload_request uuid,
  reload_answer uuid,
  reload_fault text,
  refreshing bigint[] not null default '{}'::bigint[],
  reachable_since timestamp with time zone not null default clock_timestamp(),
  constraint node_pkey PRIMARY KEY (id),
  constraint node_role CHECK ((role = ANY (ARRAY['all'::text, 'api'::text, 'worker'::text])))
);

create table operation (
  id uuid not null,
  created_at timestamp with time zone not null,
  environment_id bigint not null,
  type text not null,
  status text not null,
  integration text,
  connection text,
  actor text,
  request_id text,
  duration_ms double precision,
  method text,
  path text,
  http_status integer,
  error_code text,
  requests integer,
  retries integer,
  request_bytes bigint,
  answer_bytes bigint,
  credentials_ms double precision,
  quota_ms double precision,
  connect_ms double precision,
  first_byte_ms double precision,
  body_ms double precision,
  details jsonb not null default '{}'::jsonb,
  constraint operation_pkey PRIMARY KEY (environment_id, created_at, id),
  constraint operation_status CHECK ((status = ANY (ARRAY['success'::text, 'failed'::text])))
);
CREATE INDEX operation_failed ON ONLY public.operation USING btree (environment_id, id) INCLUDE (created_at) WHERE (status = 'failed'::text);
CREATE INDEX operation_of_connection ON ONLY public.operation USING btree (environment_id, connection, id);
CREATE INDEX operation_of_type ON ONLY public.operation USING btree (environment_id, type, id) INCLUDE (created_at) WHERE (type <> 'proxy'::text);

create table operation_count (
  environment_id bigint not null,
  span_s integer not null,
  begins_at timestamp with time zone not null,
  type text not null,
  status text not null,
  integration text not null,
  target text not null,
  variant text not null,
  count bigint not null,
  histogram integer[] not null,
  constraint operation_count_pkey PRIMARY KEY (environment_id, span_s, begins_at, type, status, integration, target, variant)
);

create table operation_count_start (
  environment_id bigint not null,
  at timestamp with time zone not null,
  constraint operation_count_start_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint operation_count_start_pkey PRIMARY KEY (environment_id)
);

create table operation_message (
  operation_id uuid not null,
  created_at timestamp with time zone not null,
  position integer not null,
  level text not null,
  message text not null,
  details jsonb not null,
  sealed bytea,
  connection_id bigint,
  constraint operation_message_level CHECK ((level = ANY (ARRAY['info'::text, 'warn'::text, 'error'::text]))),
  constraint operation_message_pkey PRIMARY KEY (created_at, operation_id, "position")
);

create table payload (
  dataset_id bigint not null,
  seq bigint not null,
  body bytea not null,
  previous bytea,
  constraint payload_pkey PRIMARY KEY (dataset_id, seq)
);

create table provider_definition (
  environment_id bigint not null,
  name text not null,
  text text not null,
  content text not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint provider_definition_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint provider_definition_pkey PRIMARY KEY (environment_id, name)
);

create table prune (
  id bigint generated always as identity not null,
  dataset_id bigint not null,
  pruned_at timestamp with time zone not null,
  seqs int8multirange not null,
  count bigint not null,
  bytes bigint not null,
  constraint prune_dataset_id_fkey FOREIGN KEY (dataset_id) REFERENCES dataset(id) ON DELETE CASCADE,
  constraint prune_pkey PRIMARY KEY (id)
);
CREATE INDEX prune_dataset ON public.prune USING btree (dataset_id, id);
CREATE INDEX prune_place ON public.prune USING gist (box(point((dataset_id)::double precision, (lower(seqs))::double precision), point((dataset_id)::double precision, (upper(seqs))::double precision)));

create table quota_book (
  bucket text not null,
  pages jsonb not null,
  version uuid not null,
  written_at timestamp with time zone not null default now(),
  constraint quota_book_pkey PRIMARY KEY (bucket)
);
CREATE INDEX quota_book_written ON public.quota_book USING btree (written_at);

create table record (
  dataset_id bigint not null,
  seq bigint not null,
  first_seen_at timestamp with time zone not null,
  last_modified_at timestamp with time zone not null,
  deleted_at timestamp with time zone,
  pruned_at timestamp with time zone,
  size integer not null,
  hash bytea not null,
  external_id text collate "C" not null,
  ignored bytea,
  constraint record_pkey PRIMARY KEY (dataset_id, external_id),
  constraint record_seq_unique UNIQUE (dataset_id, seq)
);
CREATE INDEX record_tombstone ON public.record USING btree (dataset_id, seq) WHERE (deleted_at IS NOT NULL);

create table retained (
  environment_id bigint not null,
  dataset_id bigint not null,
  payloads bigint not null,
  bytes bigint not null,
  tombstones bigint not null,
  constraint retained_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint retained_pkey PRIMARY KEY (environment_id, dataset_id)
);

create table retention (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  integration_id bigint,
  prune_after_days integer,
  remove_tombstones_after_days integer,
  wait_for_consumers boolean not null,
  updated_at timestamp with time zone not null default now(),
  constraint retention_days CHECK (((prune_after_days >= 1) AND (remove_tombstones_after_days >= 1))),
  constraint retention_does_something CHECK ((COALESCE(prune_after_days, remove_tombstones_after_days) IS NOT NULL)),
  constraint retention_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint retention_integration_id_fkey FOREIGN KEY (integration_id) REFERENCES integration(id) ON DELETE CASCADE,
  constraint retention_pkey PRIMARY KEY (id),
  constraint retention_place_unique UNIQUE NULLS NOT DISTINCT (environment_id, integration_id)
);

create table revocation (
  id bigint generated always as identity not null,
  environment_id bigint not null,
  connection bigint not null,
  about jsonb not null,
  unit text,
  account_id text,
  is_forced boolean not null,
  secrets bytea not null,
  attempts integer not null default 0,
  evidence jsonb,
  sending_until timestamp with time zone,
  next_at timestamp with time zone not null,
  created_at timestamp with time zone not null,
  constraint revocation_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint revocation_pkey PRIMARY KEY (id)
);
CREATE INDEX revocation_connection ON public.revocation USING btree (connection);
CREATE INDEX revocation_due ON public.revocation USING btree (next_at);
CREATE INDEX revocation_unit ON public.revocation USING btree (unit) WHERE (sending_until IS NOT NULL);

create table run (
  id uuid not null,
  environment_id bigint not null,
  function_id bigint not null,
  version_id bigint not null,
  connection_id bigint,
  sync_id bigint,
  variant text not null default 'base'::text,
  kind text not null,
  trigger text not null,
  state text not null default 'waiting'::text,
  priority smallint not null default 0,
  not_before timestamp with time zone not null default now(),
  queued_at timestamp with time zone not null default now(),
  started_at timestamp with time zone,
  ended_at timestamp with time zone,
  attempt integer not null default 0,
  most_attempts integer not null default 1,
  owner uuid,
  lease_until timestamp with time zone,
  cancel_requested boolean not null default false,
  input bytea,
  output bytea,
  error jsonb,
  counts jsonb not null default '{}'::jsonb,
  earlier jsonb not null default '[]'::jsonb,
  traceparent text,
  constraint run_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES connection(id) ON DELETE CASCADE,
  constraint run_ended CHECK (((ended_at IS NULL) = (state = ANY (ARRAY['waiting'::text, 'running'::text])))),
  constraint run_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint run_fence UNIQUE (id, owner),
  constraint run_function_id_fkey FOREIGN KEY (function_id) REFERENCES function(id) ON DELETE CASCADE,
  constraint run_kind CHECK ((kind = ANY (ARRAY['sync'::text, 'webhook'::text, 'action'::text, 'on_event'::text]))),
  constraint run_lease CHECK ((((owner IS NULL) = (lease_until IS NULL)) AND ((owner IS NOT NULL) = (state = 'running'::text)))),
  constraint run_pkey PRIMARY KEY (id),
  constraint run_state CHECK ((state = ANY (ARRAY['waiting'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text]))),
  constraint run_sync_id_fkey FOREIGN KEY (sync_id) REFERENCES sync(id) ON DELETE CASCADE,
  constraint run_trigger CHECK ((trigger = ANY (ARRAY['schedule'::text, 'manual'::text, 'deploy'::text, 'webhook'::text, 'connection'::text, 'action'::text, 'resume'::text]))),
  constraint run_version_id_fkey FOREIGN KEY (version_id) REFERENCES function_version(id) ON DELETE CASCADE
);
CREATE INDEX run_cancelled ON public.run USING btree (function_id, id DESC) WHERE (state = 'cancelled'::text);
CREATE INDEX run_ended ON public.run USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE INDEX run_failed ON public.run USING btree (function_id, ended_at) WHERE (state = 'failed'::text);
CREATE INDEX run_leased ON public.run USING btree (lease_until) WHERE (state = 'running'::text);
CREATE INDEX run_of_connection ON public.run USING btree (connection_id, id DESC);
CREATE INDEX run_of_environment ON public.run USING btree (environment_id, id DESC);
CREATE INDEX run_of_function ON public.run USING btree (function_id, id DESC);
CREATE INDEX run_of_sync ON public.run USING btree (sync_id, id DESC);
CREATE UNIQUE INDEX run_of_sync_once ON public.run USING btree (sync_id) WHERE ((state = ANY (ARRAY['waiting'::text, 'running'::text])) AND (kind = 'sync'::text));
CREATE INDEX run_of_version ON public.run USING btree (version_id);
CREATE INDEX run_of_webhook ON public.run USING btree (function_id, id DESC) WHERE (kind = 'webhook'::text);
CREATE INDEX run_running ON public.run USING btree (connection_id) WHERE (state = 'running'::text);
CREATE INDEX run_unsuccessful ON public.run USING btree (environment_id, state, id DESC) WHERE (state = ANY (ARRAY['failed'::text, 'cancelled'::text]));
CREATE INDEX run_waiting ON public.run USING btree (connection_id, priority DESC, not_before) WHERE (state = 'waiting'::text);

create table run_line (
  run_id uuid not null,
  position integer not null,
  at timestamp with time zone not null,
  level text not null,
  message text not null,
  sealed bytea,
  constraint run_line_level CHECK ((level = ANY (ARRAY['debug'::text, 'info'::text, 'warn'::text, 'error'::text]))),
  constraint run_line_pkey PRIMARY KEY (run_id, "position"),
  constraint run_line_run_id_fkey FOREIGN KEY (run_id) REFERENCES run(id) ON DELETE CASCADE
);

create table security_event (
  issuer text not null,
  jti text not null,
  received_at timestamp with time zone not null,
  constraint security_event_pkey PRIMARY KEY (issuer, jti)
);
CREATE INDEX security_event_age ON public.security_event USING btree (received_at);

create table sequencer (
  name text not null,
  last_position bigint not null default 0,
  chain bytea,
  constraint sequencer_pkey PRIMARY KEY (name)
);

create table sign_in_account (
  id text not null,
  user_id text not null,
  provider_id text not null,
  account_id text not null,
  access_token text,
  refresh_token text,
  id_token text,
  access_token_expires_at timestamp with time zone,
  refresh_token_expires_at timestamp with time zone,
  scope text,
  password text,
  created_at timestamp with time zone not null default now(),
  updated_at timestamp with time zone not null default now(),
  constraint sign_in_account_pkey PRIMARY KEY (id),
  constraint sign_in_account_unique UNIQUE (provider_id, account_id),
  constraint sign_in_account_user_id_fkey FOREIGN KEY (user_id) REFERENCES sign_in_user(id) ON DELETE CASCADE
);
CREATE INDEX sign_in_account_user ON public.sign_in_account USING btree (user_id);
CREATE TRIGGER sign_in_account_audited AFTER UPDATE ON public.sign_in_account FOR EACH ROW WHEN ((new.password IS DISTINCT FROM old.password)) EXECUTE FUNCTION audit_sign_in();

create table sign_in_code (
  user_id text not null,
  code text not null,
  used_at timestamp with time zone not null,
  constraint sign_in_code_pkey PRIMARY KEY (user_id, code),
  constraint sign_in_code_user_id_fkey FOREIGN KEY (user_id) REFERENCES sign_in_user(id) ON DELETE CASCADE
);

create table sign_in_failure (
  user_id text not null,
  told_at timestamp with time zone not null,
  constraint sign_in_failure_pkey PRIMARY KEY (user_id),
  constraint sign_in_failure_user_id_fkey FOREIGN KEY (user_id) REFERENCES sign_in_user(id) ON DELETE CASCADE
);

create table sign_in_key (
  is_only boolean not null default true,
  data_key uuid not null,
  constraint sign_in_key_only CHECK (is_only),
  constraint sign_in_key_pkey PRIMARY KEY (is_only)
);
CREATE TRIGGER sign_in_key_destroys_data_key AFTER DELETE OR UPDATE OF data_key ON public.sign_in_key FOR EACH ROW EXECUTE FUNCTION destroy_data_key();

create table sign_in_rate (
  id text not null,
  key text not null,
  count integer not null,
  last_request bigint not null,
  constraint sign_in_rate_key_unique UNIQUE (key),
  constraint sign_in_rate_pkey PRIMARY KEY (id)
);

create table sign_in_session (
  id text not null,
  user_id text not null,
  token text not null,
  expires_at timestamp with time zone not null,
  ip_address text,
  user_agent text,
  created_at timestamp with time zone not null default now(),
  updated_at timestamp with time zone not null default now(),
  constraint sign_in_session_pkey PRIMARY KEY (id),
  constraint sign_in_session_token_unique UNIQUE (token),
  constraint sign_in_session_user_id_fkey FOREIGN KEY (user_id) REFERENCES sign_in_user(id) ON DELETE CASCADE
);
CREATE INDEX sign_in_session_user ON public.sign_in_session USING btree (user_id);
CREATE TRIGGER sign_in_session_audited AFTER INSERT OR DELETE ON public.sign_in_session FOR EACH ROW EXECUTE FUNCTION audit_sign_in();

create table sign_in_two_factor (
  id text not null,
  user_id text not null,
  secret text not null,
  backup_codes text not null,
  verified boolean not null default true,
  failed_verification_count integer not null default 0,
  locked_until timestamp with time zone,
  constraint sign_in_two_factor_pkey PRIMARY KEY (id),
  constraint sign_in_two_factor_user_id_fkey FOREIGN KEY (user_id) REFERENCES sign_in_user(id) ON DELETE CASCADE
);
CREATE INDEX sign_in_two_factor_user ON public.sign_in_two_factor USING btree (user_id);
CREATE TRIGGER sign_in_two_factor_audited AFTER UPDATE ON public.sign_in_two_factor FOR EACH ROW WHEN ((new.failed_verification_count > old.failed_verification_count)) EXECUTE FUNCTION audit_sign_in();

create table sign_in_user (
  id text not null,
  name text not null,
  email text not null,
  email_verified boolean not null default false,
  image text,
  two_factor_enabled boolean not null default false,
  last_signed_in_at timestamp with time zone,
  created_at timestamp with time zone not null default now(),
  updated_at timestamp with time zone not null default now(),
  constraint sign_in_user_email_unique UNIQUE (email),
  constraint sign_in_user_pkey PRIMARY KEY (id)
);
CREATE TRIGGER sign_in_user_audited AFTER UPDATE ON public.sign_in_user FOR EACH ROW WHEN ((new.two_factor_enabled IS DISTINCT FROM old.two_factor_enabled)) EXECUTE FUNCTION audit_sign_in();

create table sign_in_verification (
  id text not null,
  identifier text not null,
  value text not null,
  reset_of text,
  made_by text,
  expires_at timestamp with time zone not null,
  created_at timestamp with time zone not null default now(),
  updated_at timestamp with time zone not null default now(),
  constraint sign_in_verification_made_by_fkey FOREIGN KEY (made_by) REFERENCES sign_in_user(id) ON DELETE CASCADE,
  constraint sign_in_verification_pkey PRIMARY KEY (id),
  constraint sign_in_verification_reset_of_fkey FOREIGN KEY (reset_of) REFERENCES sign_in_user(id) ON DELETE CASCADE
);
CREATE INDEX sign_in_verification_identifier ON public.sign_in_verification USING btree (identifier);
CREATE INDEX sign_in_verification_value ON public.sign_in_verification USING btree (value);

create table signing_key (
  id uuid not null,
  environment_id bigint not null,
  secret bytea not null,
  created_at timestamp with time zone not null,
  retires_at timestamp with time zone,
  constraint signing_key_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint signing_key_pkey PRIMARY KEY (id)
);
CREATE INDEX signing_key_environment ON public.signing_key USING btree (environment_id, created_at);
CREATE UNIQUE INDEX signing_key_newest ON public.signing_key USING btree (environment_id) WHERE (retires_at IS NULL);

create table sync (
  id bigint generated always as identity not null,
  function_id bigint not null,
  connection_id bigint not null,
  variant text not null default 'base'::text,
  state text not null default 'active'::text,
  frequency_s integer,
  next_at timestamp with time zone,
  held jsonb,
  last_succeeded_at timestamp with time zone,
  last_ended_at timestamp with time zone,
  failures integer not null default 0,
  created_at timestamp with time zone not null default now(),
  constraint sync_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES connection(id) ON DELETE CASCADE,
  constraint sync_frequency CHECK ((frequency_s >= 30)),
  constraint sync_function_id_fkey FOREIGN KEY (function_id) REFERENCES function(id) ON DELETE CASCADE,
  constraint sync_pkey PRIMARY KEY (id),
  constraint sync_state CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text]))),
  constraint sync_unique UNIQUE (connection_id, function_id, variant),
  constraint sync_variant CHECK ((variant ~ '^[A-Za-z0-9_-]{1,255}$'::text))
);
CREATE INDEX sync_due ON public.sync USING btree (next_at) WHERE (state = 'active'::text);
CREATE INDEX sync_function_next ON public.sync USING btree (function_id, next_at);
CREATE INDEX sync_of_function ON public.sync USING btree (function_id, id);
CREATE INDEX sync_own_frequency ON public.sync USING btree (next_at) WHERE (frequency_s IS NOT NULL);
CREATE INDEX sync_troubled ON public.sync USING btree (function_id) WHERE ((state = 'paused'::text) OR (held IS NOT NULL) OR (failures > 0));

create table sync_again (
  sync_id bigint not null,
  traceparent text,
  constraint sync_again_pkey PRIMARY KEY (sync_id),
  constraint sync_again_sync_id_fkey FOREIGN KEY (sync_id) REFERENCES sync(id) ON DELETE CASCADE
);

create table tracked (
  id bigint generated always as identity not null,
  dataset_id bigint not null,
  seqs bigint[] not null,
  constraint tracked_dataset_id_fkey FOREIGN KEY (dataset_id) REFERENCES dataset(id) ON DELETE CASCADE,
  constraint tracked_pkey PRIMARY KEY (id)
);
CREATE INDEX tracked_place ON public.tracked USING btree (dataset_id, id);

create table watch (
  id bigint generated always as identity not null,
  connection_id bigint not null,
  target text not null,
  next_at timestamp with time zone not null,
  attempts integer not null default 0,
  fault jsonb,
  noticed_at timestamp with time zone,
  constraint watch_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES watching(connection_id) ON DELETE CASCADE,
  constraint watch_pkey PRIMARY KEY (id),
  constraint watch_unique UNIQUE (connection_id, target)
);
CREATE INDEX watch_due ON public.watch USING btree (next_at);
CREATE INDEX watch_noticed ON public.watch USING btree (noticed_at) WHERE (noticed_at IS NOT NULL);

create table watching (
  connection_id bigint not null,
  look_at timestamp with time zone not null,
  constraint watching_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES connection(id) ON DELETE CASCADE,
  constraint watching_pkey PRIMARY KEY (connection_id)
);
CREATE INDEX watching_due ON public.watching USING btree (look_at);

create table webhook_body (
  event_id uuid not null,
  environment_id bigint not null,
  integration_id bigint not null,
  connection_id bigint,
  sealed bytea not null,
  received_at timestamp with time zone not null,
  constraint webhook_body_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES connection(id) ON DELETE CASCADE,
  constraint webhook_body_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES environment(id) ON DELETE CASCADE,
  constraint webhook_body_event_id_fkey FOREIGN KEY (event_id) REFERENCES event(id) ON DELETE CASCADE,
  constraint webhook_body_integration_id_fkey FOREIGN KEY (integration_id) REFERENCES integration(id) ON DELETE CASCADE,
  constraint webhook_body_pkey PRIMARY KEY (event_id)
);
CREATE INDEX webhook_body_of_connection ON public.webhook_body USING btree (connection_id);
CREATE INDEX webhook_body_of_environment ON public.webhook_body USING btree (environment_id);
CREATE INDEX webhook_body_of_integration ON public.webhook_body USING btree (integration_id, received_at);

create table webhook_seen (
  integration_id bigint not null,
  digest bytea not null,
  seen_at timestamp with time zone not null,
  constraint webhook_seen_integration_id_fkey FOREIGN KEY (integration_id) REFERENCES integration(id) ON DELETE CASCADE,
  constraint webhook_seen_pkey PRIMARY KEY (integration_id, digest)
);
CREATE INDEX webhook_seen_age ON public.webhook_seen USING btree (seen_at);

CREATE OR REPLACE FUNCTION public.audit_sign_in()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.destroy_data_key()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  if tg_op = 'DELETE' or new.data_key is distinct from old.data_key then
    delete from data_key where id = old.data_key;
  end if;
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.forget_answers_of_key()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  delete from idempotent_request where key_id = new.id;
  return null;
end;
$function$;

CREATE OR REPLACE FUNCTION public.forget_tracking_id()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  new.tracking_id := null;
  return new;
end;
$function$;

CREATE OR REPLACE FUNCTION public.name_connection()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  if new.deleted_at is not null then
    delete from connection_name where connection_id = new.id;
  else
    insert into connection_name (connection_id, environment_id, created_at, names)
    values (new.id, new.environment_id, new.created_at, names_of(new))
    on conflict on constraint connection_name_pkey
    do update set created_at = excluded.created_at, names = excluded.names;
  end if;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.names_of(connection)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
  select string_agg(distinct lower(name), chr(10))
  from unnest(array[
    $1.connection_id, $1.account_id, $1.account_email, $1.end_user ->> 'id', $1.end_user ->> 'display_name',
    $1.end_user ->> 'email'
  ]) as name
$function$;

CREATE OR REPLACE FUNCTION public.refuse_audit_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  -- The sequencer's step: an entry gets its place once, and nothing else of it changes.
  if tg_op = 'UPDATE' and old.position is null and old.chain is null and new.position is not null
    and new.chain is not null
    and (new.id, new.environment_id, new.actor, new.action, new.target, new.details, new.created_at)
      is not distinct from
      (old.id, old.environment_id, old.actor, old.action, old.target, old.details, old.created_at)
  then
    return new;
  end if;
  raise exception 'the audit log is append-only: % is refused', lower(tg_op) using errcode = 'insufficient_privilege';
end
$function$;

CREATE OR REPLACE FUNCTION public.trigrams(names text)
 RETURNS text[]
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT COST 5000
AS $function$
  select array(select substr(names, n, 3) from generate_series(1, length(names) - 2) as n)
$function$;
