import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import type { Db, Queryable } from '../db/pool.ts';
import {
  type ConnectSettings,
  connectInput,
  connectToWire,
  connectWarning,
  connectWire,
  readConnectSettings,
  warningsOf,
  writeConnectSettings,
} from '../environments/connect-settings.ts';
import { type EventSwitch, eventSwitches } from '../events/compat-types.ts';
import { actorOf } from '../http/auth/caller.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { webAddress } from '../http/text.ts';
import type { Outbound } from '../outbound/outbound.ts';
import type { Vault } from '../vault.ts';
import { acceptEmptyBody, requireAddress } from './endpoint-routes.ts';
import { originOf } from './endpoints.ts';
import { type EventSettings, readSettings, setAddress, writeSettings } from './settings.ts';
import { rotateSigningKey, type SigningKeys, signingKeys } from './signing.ts';

type SettingsRouteDeps = {
  db: Db;
  vault: Vault;
  outbound: Pick<Outbound, 'requireReachable'>;
  now: () => Date;
  /** Called with an environment whose signing keys changed. */
  afterRotation: (environmentId: number) => void;
};

const switches = z.object(
  Object.fromEntries(eventSwitches.map((name) => [name, z.boolean()])) as Record<EventSwitch, z.ZodBoolean>,
);
const overlapHours = z.number().int().min(0).max(720);
const settingsWire = switches.extend({
  webhook_url: z.string().nullable(),
  webhook_url_secondary: z.string().nullable(),
  webhook_signing_key_overlap_hours: z.number(),
  connect: connectWire,
  connect_warnings: z.array(connectWarning),
});
/** An empty text or null clears it. */
const address = z
  .union([z.literal(''), webAddress()])
  .nullable()
  .optional();
const keyWire = z.object({
  webhook_signing_key: z.string(),
  created_at: z.string(),
  /** Earlier keys that still sign. */
  earlier: z.array(z.object({ created_at: z.string(), retires_at: z.string().nullable() })),
});
nameSchemas({ EnvironmentSettings: settingsWire, WebhookSigningKey: keyWire });
const hourMs = 3_600_000;

/** Settings of the environment: the addresses and signing keys of its events, and the look of its connect page. */
export function settingsRoutes(
  app: App,
  { db, vault, outbound, now, afterRotation }: SettingsRouteDeps,
): void {
  app.get(
    '/environment/settings',
    {
      config: { access: { by: 'key', scope: 'environment:read' } },
      schema: {
        operationId: 'getSettings',
        summary: 'Get the settings of the environment',
        description:
          'The addresses of its events, the switches for these events, and the appearance of its connect page.',
        response: { 200: z.object({ data: settingsWire }) },
      },
    },
    async ({ caller }) => ({ data: await readWire(db, caller.environmentId) }),
  );

  app.patch(
    '/environment/settings',
    {
      config: { access: { by: 'key', scope: 'environment:write' } },
      schema: {
        operationId: 'changeSettings',
        summary: 'Change the settings of the environment',
        description:
          'Absent fields stay as they are. `webhook_url` and `webhook_url_secondary` receive the bodies that official ' +
          'clients expect, for the events that the switches select; an empty text or null removes an address. Setting a ' +
          'disabled address again enables it. `connect` is the appearance of the connect page; null restores the default, ' +
          'and `connect_warnings` lists colors that are hard to read.',
        errors: ['address_not_allowed'],
        example: { body: { webhook_url: 'https://app.customer.example/hooks/trellis', on_sync_error: true } },
        body: z.strictObject({
          webhook_url: address,
          webhook_url_secondary: address,
          ...switches.partial().shape,
          webhook_signing_key_overlap_hours: overlapHours.optional(),
          connect: connectInput.optional(),
        }),
        response: { 200: z.object({ data: settingsWire }) },
      },
    },
    async ({ body, caller }) => {
      const {
        webhook_url: primary,
        webhook_url_secondary: secondary,
        webhook_signing_key_overlap_hours: overlap,
        connect,
        ...wanted
      } = body;
      if (primary) requireAddress(primary, ['webhook_url'], outbound);
      if (secondary) requireAddress(secondary, ['webhook_url_secondary'], outbound);
      const { environmentId } = caller;
      const data = await db.transaction(async (tx) => {
        for (const [kind, url] of [['primary', primary] as const, ['secondary', secondary] as const]) {
          if (url !== undefined)
            await setAddress(tx, { environmentId, kind, url: url || undefined, now: now() });
        }
        await writeSettings(tx, { environmentId, change: { switches: wanted, overlapHours: overlap } });
        if (connect) await writeConnectSettings(tx, { environmentId, change: connect });
        const settings = await readWire(tx, environmentId);
        const changed = Object.keys(body) as (keyof typeof body)[];
        await writeAudit(tx, {
          environmentId,
          actor: actorOf(caller),
          action: 'settings.changed',
          target: caller.environment,
          details: Object.fromEntries(changed.map((name) => [name, auditValue(settings[name])])),
        });
        return settings;
      });
      return { data };
    },
  );

  app.get(
    '/environment/webhook-signing-key',
    {
      config: { access: { by: 'key', scope: 'keys' } },
      schema: {
        operationId: 'getSigningKey',
        summary: 'Get the key that signs events',
        description: 'The key is created when it is first needed.',
        response: { 200: z.object({ data: keyWire }) },
      },
    },
    async ({ caller: { environmentId } }) => ({
      data: keyToWire(await signingKeys(db, { environmentId, vault, now: now() })),
    }),
  );

  app.post(
    '/environment/webhook-signing-key/rotate',
    {
      preValidation: acceptEmptyBody,
      config: { access: { by: 'key', scope: 'keys' } },
      schema: {
        operationId: 'rotateSigningKey',
        summary: 'Sign events with a new key',
        description:
          'The previous key also signs for `overlap_hours`, or, without `overlap_hours`, for ' +
          '`webhook_signing_key_overlap_hours` of the settings; with 0 it ends immediately.',
        example: { body: { overlap_hours: 24 } },
        body: z.strictObject({ overlap_hours: overlapHours.optional() }),
        response: { 200: z.object({ data: keyWire }) },
      },
    },
    async ({ body, caller }) => {
      const { environmentId } = caller;
      const keys = await db.transaction(async (tx) => {
        const hours = body.overlap_hours ?? (await readSettings(tx, environmentId)).overlapHours;
        const at = { environmentId, vault, now: now(), overlapMs: hours * hourMs };
        const rotated = await rotateSigningKey(tx, at);
        await writeAudit(tx, {
          environmentId,
          actor: actorOf(caller),
          action: 'signing_key.rotated',
          target: caller.environment,
          details: { overlap_hours: hours },
        });
        return rotated;
      });
      afterRotation(environmentId);
      return { data: keyToWire(keys) };
    },
  );
}

async function readWire(db: Queryable, environmentId: number) {
  return toWire(await readSettings(db, environmentId), await readConnectSettings(db, environmentId));
}

function toWire(
  { addresses, switches: given, overlapHours: hours }: EventSettings,
  connect: ConnectSettings,
): z.input<typeof settingsWire> {
  return {
    webhook_url: addresses.primary ?? null,
    webhook_url_secondary: addresses.secondary ?? null,
    ...(Object.fromEntries(eventSwitches.map((name) => [name, given[name]])) as typeof given),
    webhook_signing_key_overlap_hours: hours,
    connect: connectToWire(connect),
    connect_warnings: warningsOf(connect),
  };
}

/** The value for the audit log: the origin of an address, and `changed` for an object. */
function auditValue(value: string | number | boolean | object | null): string | number | boolean | null {
  if (typeof value === 'object') return value === null ? null : 'changed';
  return typeof value === 'string' ? originOf(value) : value;
}

function keyToWire([newest, ...earlier]: SigningKeys): z.input<typeof keyWire> {
  return {
    webhook_signing_key: newest.secret,
    created_at: newest.createdAt.toISOString(),
    earlier: earlier.map(({ createdAt, retiresAt }) => ({
      created_at: createdAt.toISOString(),
      retires_at: retiresAt?.toISOString() ?? null,
    })),
  };
}
