// What a database held at each migration, as the service of then wrote it: at least one row in every table.

import { createSecretKey } from 'node:crypto';
import { openVault, proofOf, type Vault } from '../../server/vault.ts';

/** Whose rows they are, to be read by today's service once they were brought up to date. */
export const held = {
  environment: 'old',
  integrationKey: 'crm',
  connectionId: 'first',
  credentials: { type: 'API_KEY', apiKey: 'key-of-then' },
  model: 'Contact',
  record: { id: 'r1', fields: { name: 'Ada' } },
} as const;

export type RowsByVersion = {
  vault: Vault;
  /** SQL that writes rows, behind the migration of this number. In their order. */
  after: ReadonlyMap<number, string>;
};

/** Sealed with a master key of its own. */
export function rowsByVersion(): RowsByVersion {
  const master = { id: 'then', key: createSecretKey(Buffer.alloc(32, 7)) };
  const vault = openVault([master]);
  const [environment, connection, signIn, other] = [0, 1, 2, 3].map(() => vault.createDataKey());
  const hex = (bytes: Buffer) => `'\\x${bytes.toString('hex')}'`;
  const credentials = connection!.key.sealJson(held.credentials, 'credentials');
  const payload = connection!.key.sealJson(held.record.fields, `record 1 ${held.record.id}`);
  const soon = `now() + interval '1 hour'`;
  const uuid = (n: number) => `'00000000-0000-7000-8000-${String(n).padStart(12, '0')}'`;
  const after = new Map<number, string>();

  after.set(
    1,
    `insert into master_key (id, proof) values ('then', ${hex(proofOf(master))});
     insert into environment (name, data_key) values ('${held.environment}', ${hex(environment!.wrapped)});
     insert into api_key (environment_id, name, hash, hint, scopes) values (1, 'k', '\\x01', 'abcd', '{*}');`,
  );
  after.set(
    2,
    `insert into audit (environment_id, actor, action, target) values (1, 'service', 'key.created', '1');`,
  );
  after.set(
    3,
    `insert into event (id, environment_id, type, data)
     values (${uuid(1)}, 1, 'records.dataset_emptied', jsonb_build_object(
       'connection_id', '${held.connectionId}', 'provider_config_key', '${held.integrationKey}',
       'model', '${held.model}', 'variant', 'base', 'records', 1, 'deleted', 1));`,
  );
  after.set(
    4,
    `insert into integration (environment_id, key, provider, display_name, integration_config)
     values (1, '${held.integrationKey}', 'private-api-key', 'CRM', '{"base_url": "https://crm.example.com"}');
     insert into connection (environment_id, integration_id, connection_id, data_key, credentials)
     values (1, 1, '${held.connectionId}', ${hex(connection!.wrapped)}, ${hex(credentials)});
     insert into connection (environment_id, integration_id, connection_id, deleted_at)
     values (1, 1, 'gone', now());
     insert into audit (environment_id, actor, action, target)
     values (1, 'key:1', 'connection.imported', '${held.integrationKey}/${held.connectionId}');`,
  );
  after.set(
    5,
    `insert into connect_session (environment_id, token_hash, settings, expires_at) values (1, '\\x01', '\\x02', ${soon});
     insert into auth_attempt
       (state_hash, environment_id, integration_id, session_id, browser_hash, secrets, expires_at)
     values ('\\x01', 1, 1, 1, '\\x02', '\\x03', ${soon});`,
  );
  after.set(
    6,
    `insert into dataset (connection, model, variant, last_seq, prune_floor, records, deleted, pruned, payload_bytes, last_modified_at)
     values (1, '${held.model}', 'base', 3, 1, 2, 1, 1, ${payload.length}, now());
     insert into record (dataset_id, seq, first_seen_at, last_modified_at, deleted_at, size, hash, external_id)
     values
       (1, 1, now(), now(), null, 10, '\\x00', 'pruned'),
       (1, 2, now(), now(), null, ${payload.length}, '\\x01', '${held.record.id}'),
       (1, 3, now(), now(), now(), 10, '\\x02', 'deleted');
     insert into payload (dataset_id, seq, body) values (1, 2, ${hex(payload)});
     insert into prune (dataset_id, pruned_at, seqs, count, bytes) values (1, now(), '{[1,2)}', 1, 10);`,
  );
  after.set(7, `insert into tracked (dataset_id, seqs) values (1, '{2}');`);
  after.set(
    8,
    `insert into consumer (dataset_id, name, seq, acknowledged_at) values (1, 'reader', 2, now());
     insert into retention (environment_id, integration_id, prune_after_days, wait_for_consumers) values (1, null, 400, true);`,
  );
  after.set(
    9,
    `update connection
     set refresh_owner = gen_random_uuid(), refresh_until = now(), kept_tokens = '\\x01'
     where deleted_at is null;`,
  );
  after.set(
    10,
    `update integration set fault = '{"cause": "misconfigured"}', probe_at = now();
     update connection set outage = '{"cause": "transient"}', scopes_lacking = '{a}' where deleted_at is null;`,
  );
  after.set(
    11,
    `insert into issued_token (holder, connection, issued_at) values ('\\x01', 1, now());
     update connection set token_slots = '{"used": 1, "limit": 2}' where deleted_at is null;`,
  );
  after.set(
    12,
    `insert into revocation (environment_id, connection, about, is_forced, secrets, next_at, created_at)
     values (1, 2, '{}', false, '\\x01', ${soon}, now());
     insert into exchange (unit, expires_at) values ('u', ${soon});
     insert into security_event (issuer, jti, received_at) values ('i', 'j', now());`,
  );
  after.set(
    13,
    'insert into retained (environment_id, dataset_id, payloads, bytes, tombstones) values (1, 1, 1, 1, 1);',
  );
  after.set(14, 'update auth_attempt set taken_at = now();');
  after.set(
    15,
    `insert into quota_book (bucket, pages, version) values ('b', '{"cells": []}', gen_random_uuid());`,
  );
  after.set(
    16,
    `update api_key set proxy_rules = '[{"effect": "allow", "methods": ["GET"], "path": "/**"}]';
     update integration set proxy_rules = '[{"effect": "deny", "methods": ["*"], "path": "/admin"}]';`,
  );
  after.set(
    17,
    `create table operation_20260131 partition of operation for values from ('2026-01-31') to ('2026-02-01');
     create table operation_message_20260131 partition of operation_message
       for values from ('2026-01-31') to ('2026-02-01');
     insert into operation (id, created_at, environment_id, type, status)
     values (${uuid(2)}, '2026-01-31 12:00Z', 1, 'proxy', 'success');
     insert into operation_message (operation_id, created_at, position, level, message, details)
     values (${uuid(2)}, '2026-01-31 12:00Z', 1, 'info', 'm', '{}');`,
  );
  after.set(
    18,
    `update connection set withheld = '{"cause": "client"}', withheld_until = now() where deleted_at is null;
     update integration set partial_fault = '{"cause": "client"}';`,
  );
  after.set(19, `update api_key set expires_at = now() + interval '1 year', is_setting = true;`);
  after.set(
    20,
    `insert into key_file (made_at) values (now());
     insert into data_key (id, master_key, wrapped)
     values (${uuid(3)}, 'then', ${hex(signIn!.wrapped)}), (${uuid(4)}, 'then', ${hex(other!.wrapped)});
     insert into environment (name, data_key) values ('younger', ${uuid(4)});`,
  );
  after.set(
    21,
    `insert into event_settings (environment_id) values (1);
     insert into signing_key (id, environment_id, secret, created_at) values (${uuid(5)}, 1, '\\x01', now());
     insert into endpoint (environment_id, kind, url) values (1, 'events', 'https://app.example.com/hook');
     insert into delivery (environment_id, endpoint_id, event_id, position, lane, queued_at)
     values (1, 1, ${uuid(1)}, 1, 0, now());
     insert into delivery_lane (endpoint_id, lane, due_at) values (1, 0, ${soon});`,
  );
  after.set(
    23,
    `insert into sign_in_user (id, name, email) values ('u', 'Ada', 'ada@example.com');
     insert into sign_in_session (id, user_id, token, expires_at) values ('s', 'u', 't', ${soon});
     insert into sign_in_account (id, user_id, provider_id, account_id, password) values ('a', 'u', 'credential', 'u', 'p');
     insert into sign_in_verification (id, identifier, value, expires_at) values ('v', 'i', 'x', ${soon});
     insert into sign_in_two_factor (id, user_id, secret, backup_codes) values ('f', 'u', 's', 'c');
     insert into sign_in_code (user_id, code, used_at) values ('u', '1', now());
     insert into sign_in_rate (id, key, count, last_request) values ('r', 'k', 1, 1);
     insert into sign_in_key (data_key) values (${uuid(3)});
     insert into sign_in_failure (user_id, told_at) values ('u', now());
     insert into member (user_id, role) values ('u', 'owner');
     insert into invitation (hash, role, expires_at) values ('\\x01', 'viewer', ${soon});`,
  );
  after.set(
    24,
    `update dataset set keep_previous = true; update payload set previous = '\\x01' where false;`,
  );
  after.set(
    25,
    `insert into connect_settings (environment_id, app_name, theme) values (1, 'App', 'dark');
     insert into environment_variable (environment_id, name, value) values (1, 'N', '\\x01');`,
  );
  after.set(
    26,
    `insert into connect_notice (waiter_hash, message, created_at) values ('\\x01', '{}', now());`,
  );
  after.set(
    27,
    `insert into function_bundle (environment_id, digest, code, touched_at) values (1, '\\x01', '\\x02', now());
     insert into function (environment_id, integration_id, kind, name, origin) values (1, 1, 'sync', 'contacts', 'folder');
     insert into function_version (function_id, number, label, bundle_id, definition, deployed_at, deployed_by)
     values (1, 1, '1.0.0', 1, '{}', now(), 'service');
     update function set version_id = 1;
     insert into sync (function_id, connection_id) values (1, 1);
     insert into function_checkpoint (function_id, connection_id, variant, value) values (1, 1, 'base', '\\x01');
     insert into run (id, environment_id, function_id, version_id, connection_id, sync_id, kind, trigger)
     values (${uuid(6)}, 1, 1, 1, 1, 1, 'sync', 'schedule');
     insert into run_line (run_id, position, at, level, message) values (${uuid(6)}, 1, now(), 'info', 'm');
     insert into function_lock (environment_id, key, run_id, lease_until) values (1, 'k', ${uuid(6)}, ${soon});`,
  );
  after.set(
    28,
    `insert into webhook_body (event_id, environment_id, integration_id, connection_id, sealed, received_at)
     values (${uuid(1)}, 1, 1, 1, '\\x01', now());
     insert into webhook_seen (integration_id, digest, seen_at) values (1, '\\x01', now());
     insert into watching (connection_id, look_at) values (1, ${soon});
     insert into watch (connection_id, target, next_at) values (1, 't', ${soon});
     insert into channel (id, connection_id, target, token_digest, state, asked_at, expires_at)
     values (${uuid(7)}, 1, 't', '\\x01', 'asked', now(), ${soon});`,
  );
  after.set(
    31,
    `update function set origin = 'shipped';
     insert into function_state (function_id, connection_id, variant, value) values (1, 1, 'base', '\\x01');`,
  );
  after.set(
    34,
    `insert into node (id, name, role, version, migration) values (${uuid(8)}, 'n:1', 'all', '0.1.0', '0034_nodes.sql');
     insert into errand (id, environment_id, kind, request, awaited_until) values (${uuid(9)}, 1, 'run', '\\x01', now());`,
  );
  after.set(36, 'insert into key_rate (key_id, full_at) values (1, now());');
  const traceparent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`;
  after.set(
    37,
    `update run set traceparent = '${traceparent}'; update errand set traceparent = '${traceparent}';`,
  );
  after.set(
    38,
    `insert into import (environment_id, source) values (1, 'https://peer.example.com');
     insert into imported_connection (import_id, integration, connection, outcome, was_here)
     values (1, '${held.integrationKey}', '${held.connectionId}', 'made', true);
     insert into imported_dataset (import_id, integration, connection, model, variant, stored_id)
     values (1, '${held.integrationKey}', '${held.connectionId}', '${held.model}', 'base', 1);`,
  );
  after.set(40, 'update import set overwrites = true; update imported_connection set granted_at = now();');
  after.set(42, `update connection set own_client_id = 'own' where has_own_client;`);
  after.set(43, `insert into sync_again (sync_id, traceparent) values (1, '${traceparent}');`);
  after.set(
    44,
    `update api_key set first_key_id = id;
     update consumer set owner_key_id = 1, held_seq = seq, held_since = now();`,
  );
  after.set(
    45,
    `update run_line set message = '', sealed = '\\x01';
     insert into operation_message (operation_id, created_at, position, level, message, details, sealed, connection_id)
     select operation_id, created_at, 1000, level, '', '{}', '\\x01', 1 from operation_message;`,
  );
  after.set(
    47,
    `update dataset
     set tracked_from = 1, tracking_id = ${uuid(10)}, held_at = now(), held_count = 2, allowed_count = 2
     where tracked_from is null;
     update function_checkpoint
     set written = jsonb_build_object('version', version, 'run', ${uuid(6)}, 'trackings', jsonb_build_array());`,
  );
  after.set(
    48,
    `insert into operation_count (
       environment_id, span_s, begins_at, type, status, integration, target, variant, count, histogram
     )
     values (1, 60, date_trunc('minute', now()), 'proxy', 'failed', '${held.integrationKey}', '', '', 2, '{0,2}');`,
  );
  after.set(
    50,
    `insert into idempotent_request (environment_id, digest, fingerprint, key_id, created_at, leased_until, answer, is_final)
     values (1, '\\x01', '\\x02', 1, now(), now(), '\\x03', true);`,
  );
  after.set(
    51,
    `update connect_settings
     set font = 'Inter', radius = 4, light_background = '#ffffff', texts = '{"de":{"close":"Zu"}}', return_schemes = '{myapp}';`,
  );
  after.set(52, 'update dataset set has_leftovers = true where emptied_seq > 0;');
  after.set(
    53,
    `insert into endpoint (environment_id, kind, format, url)
     values (1, 'events', 'slack', 'https://hooks.example.com/1'), (1, 'events', 'email', 'mailto:ops@example.com');`,
  );
  after.set(
    55,
    `insert into provider_definition (environment_id, name, text, content, created_at, updated_at)
     values (1, 'own-crm', 'extends: private-api-key', '${JSON.stringify({
       display_name: 'Our CRM',
       categories: ['crm'],
       docs: 'https://crm.example.com/docs',
       auth_mode: 'NONE',
       api: { base_url: 'https://crm.example.com' },
     })}', now(), now());`,
  );
  after.set(56, `update integration set reported_sunsets = '{2027-01-01}';`);
  after.set(58, 'update dataset set closed = true where has_leftovers;');
  const entry = `{"environment_id":1,"actor":"key:1","action":"records.pruned","target":"x","details":{"count":1}}`;
  after.set(
    63,
    `insert into dataset_outbox (dataset_id, id, sequence, entry) values (1, ${uuid(30)}, 'audit', '${entry}');`,
  );
  after.set(65, 'update connection set is_unverified = true, lacks_scopes = true where deleted_at is null;');
  after.set(
    68,
    `insert into connection_name (connection_id, environment_id, created_at, names)
     select id, environment_id, created_at, names_of(connection) from connection where id = 1;`,
  );
  return { vault, after };
}
