// What the stand-in of `peer.ts` holds, and the bodies in which it tells it: field names, times and cursors as such an
// installation writes them.

import { createHash, randomBytes } from 'node:crypto';

export type PeerRecord = {
  id: string;
  fields: Record<string, unknown>;
  /** Its place in the order of changes; also its time, in microseconds from some moment on. */
  order: number;
  isDeleted?: boolean;
  isPruned?: boolean;
};

export type PeerConnection = {
  id: string;
  integration: string;
  credentials: Record<string, unknown>;
  metadata: Record<string, unknown> | null;
  tags: Record<string, string>;
  endUser: Record<string, unknown> | null;
  config: Record<string, unknown>;
  webhookUrlOverride: string | null;
  createdAt: Date;
  updatedAt: Date;
  /** How often it is answered as one without credentials before it gets well; Infinity: never. */
  deadReads: number;
  /** By model, or `Model::variant`. */
  records: Map<string, PeerRecord[]>;
  reads: number;
};

export type PeerIntegration = {
  key: string;
  provider: string;
  authMode: string;
  credentials?: Record<string, unknown> | null;
  /** What else stands in it. */
  more?: Record<string, unknown>;
};

/** A connection of OAuth whose token has an hour left. */
export function peerConnection(
  given: Partial<PeerConnection> & Pick<PeerConnection, 'id' | 'integration'>,
): PeerConnection {
  return {
    credentials: {
      type: 'OAUTH2',
      access_token: `access-of-${given.id}-${randomBytes(8).toString('hex')}`,
      refresh_token: `refresh-of-${given.id}-${randomBytes(8).toString('hex')}`,
      expires_at: new Date(Date.now() + 3_600_000).toISOString(),
    },
    metadata: { plan: given.id },
    tags: { team: 'blue' },
    endUser: null,
    config: {},
    webhookUrlOverride: null,
    createdAt: new Date(Date.UTC(2026, 0, 1)),
    updatedAt: new Date(Date.now() - 86_400_000),
    deadReads: 0,
    records: new Map(),
    reads: 0,
    ...given,
  };
}

export function integrationBody({ key, provider, more }: PeerIntegration): Record<string, unknown> {
  return {
    unique_key: key,
    provider,
    display_name: key,
    logo: 'https://example.com/logo.svg',
    forward_webhooks: true,
    created_at: '2026-01-01T00:00:00.000Z',
    updated_at: '2026-01-01T00:00:00.000Z',
    ...more,
  };
}

export function commonBody(one: PeerConnection): Record<string, unknown> {
  return {
    id: Number.parseInt(createHash('md5').update(one.id).digest('hex').slice(0, 8), 16),
    connection_id: one.id,
    provider_config_key: one.integration,
    provider: one.integration,
    errors: one.deadReads > 0 ? [{ type: 'auth', log_id: 'x' }] : [],
    end_user: one.endUser,
    tags: one.tags,
    metadata: one.metadata,
  };
}

export function fullBody(one: PeerConnection): Record<string, unknown> {
  const at = one.createdAt.toISOString().replace('Z', '+00:00');
  const { credentials } = one;
  const raw = credentials.type === 'OAUTH2' ? { raw: { ...credentials, scope: 'a b' } } : {};
  return {
    ...commonBody(one),
    connection_config: one.config,
    webhook_url_override: one.webhookUrlOverride,
    created_at: at,
    updated_at: one.updatedAt.toISOString(),
    last_fetched_at: at,
    credentials: credentials.type === 'NONE' ? {} : { ...credentials, ...raw },
  };
}

export function timeOf({ order }: PeerRecord): string {
  return `2026-01-01T00:${String(Math.floor(order / 1e6 / 60)).padStart(2, '0')}:${String(Math.floor(order / 1e6) % 60).padStart(2, '0')}.${String(order % 1e6).padStart(6, '0')}`;
}

export function cursorText(one: PeerRecord): string {
  return `${timeOf(one)}+00:00||${createHash('md5').update(one.id).digest('hex')}`;
}

/** The position of a record there, as an application keeps it. */
export function cursorOf(one: PeerRecord): string {
  return Buffer.from(cursorText(one)).toString('base64');
}

export function placeOfCursor(cursor: string): string | undefined {
  const text = Buffer.from(cursor, 'base64').toString();
  return text.includes('||') ? text : undefined;
}

export function recordBody(one: PeerRecord): Record<string, unknown> {
  const at = `${timeOf(one)}+00:00`;
  return {
    ...(one.isPruned ? {} : one.fields),
    id: one.id,
    _nango_metadata: {
      first_seen_at: at,
      last_modified_at: at,
      last_action: one.isDeleted ? 'DELETED' : 'ADDED',
      deleted_at: one.isDeleted ? at : null,
      pruned_at: one.isPruned ? at : null,
      cursor: cursorOf(one),
    },
  };
}
